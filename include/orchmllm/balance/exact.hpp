// Exact assignment by branch and bound, anytime: the best found within a node budget, and whether it is proven.
//
// Depth-first over samples (or groups) by descending cost, ranks by ascending cost; ranks in equal state are tried
// once. A branch is cut when it cannot beat the best: a rank's cost reaches it, or what is left does not fit under it.
// Complexity: exponential in the worst case, cut off by `max_nodes` (deterministic, no clock). About 15 samples are
// solved within the default budget, far more where the lower bound is met. Guarantee: optimal if `proven`; then the
// lower bound is raised to the optimum. Constraints hold; Infeasible is thrown only where no assignment exists or none
// was found. Source: textbook branch and bound for P || Cmax.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/balance/constrained.hpp"
#include "orchmllm/balance/conv_packed.hpp"
#include "orchmllm/balance/refine.hpp"

namespace orch::balance {

struct ExactOptions {
  std::uint64_t max_nodes = 1U << 20U;
};

namespace detail {

class BranchAndBound {
 public:
  BranchAndBound(const Problem& problem, Cost bound, std::uint64_t max_nodes)
      : problem_(problem),
        bound_(bound),
        nodes_left_(max_nodes),
        placer_(problem),
        current_(problem.items.size()),
        left_(problem.items.size() + 1, 0) {
    for (std::size_t item = problem.items.size(); item-- > 0;) left_[item] = left_[item + 1] + problem.items[item].cost;
  }

  /// Starts from a known assignment, which the search must beat.
  void start_with(std::vector<std::uint32_t> rank_of) {
    std::vector<Cost> load(problem_.ranks, 0);
    for (std::size_t item = 0; item < rank_of.size(); ++item) load[rank_of[item]] += problem_.items[item].cost;
    Cost most = 0;
    for (std::uint32_t rank = 0; rank < problem_.ranks; ++rank)
      most = std::max(most, problem_.rank_cost(rank, load[rank]));
    best_cost_ = most;
    best_ = std::move(rank_of);
  }

  void run() {
    if (!best_ || best_cost_ > bound_) search(0, 0);
  }

  [[nodiscard]] const std::optional<std::vector<std::uint32_t>>& best() const { return best_; }
  [[nodiscard]] Cost best_cost() const { return best_cost_; }
  /// The search came to its end: nothing is better than best(), or nothing exists.
  [[nodiscard]] bool complete() const { return nodes_left_ > 0 || best_cost_ <= bound_; }

 private:
  void search(std::size_t item, Cost most) {
    if (item == problem_.items.size()) {
      best_ = current_;
      best_cost_ = most;
      return;
    }
    if (best_ && problem_.speed.empty() && !room_for(left_[item])) return;
    std::vector<std::uint32_t> ranks(problem_.ranks);
    std::iota(ranks.begin(), ranks.end(), 0U);
    std::sort(ranks.begin(), ranks.end(), [&](std::uint32_t a, std::uint32_t b) {
      const Cost cost_a = problem_.rank_cost(a, placer_.load(a));
      const Cost cost_b = problem_.rank_cost(b, placer_.load(b));
      return cost_a != cost_b ? cost_a < cost_b : a < b;
    });
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (nodes_left_ == 0 || (best_ && best_cost_ <= bound_)) return;
      const std::uint32_t rank = ranks[i];
      if (!placer_.allowed(problem_.items[item], rank) || equal_to_earlier(ranks, i)) continue;
      const Cost cost = problem_.rank_cost(rank, checked_add(placer_.load(rank), problem_.items[item].cost));
      if (best_ && cost >= best_cost_) continue;
      --nodes_left_;
      current_[item] = rank;
      placer_.place(problem_.items[item], rank);
      search(item + 1, std::max(most, cost));
      placer_.remove(problem_.items[item], rank);
    }
  }

  /// Whether the cost that is left fits below the best cost at all.
  [[nodiscard]] bool room_for(Cost left) const {
    Cost room = 0;
    for (std::uint32_t rank = 0; rank < problem_.ranks && room < left; ++rank) {
      if (placer_.load(rank) < best_cost_) room += best_cost_ - 1 - placer_.load(rank);
    }
    return room >= left;
  }

  [[nodiscard]] bool equal_to_earlier(std::span<const std::uint32_t> ranks, std::size_t i) const {
    for (std::size_t k = 0; k < i; ++k) {
      const std::uint32_t a = ranks[k];
      const std::uint32_t b = ranks[i];
      if (placer_.load(a) == placer_.load(b) && placer_.count(a) == placer_.count(b) &&
          placer_.weight(a) == placer_.weight(b) &&
          (problem_.speed.empty() || problem_.speed[a] == problem_.speed[b])) {
        return true;
      }
    }
    return false;
  }

  const Problem& problem_;
  Cost bound_;
  std::uint64_t nodes_left_;
  Placer placer_;
  std::vector<std::uint32_t> current_;
  std::vector<Cost> left_;  ///< item → cost of it and all later ones
  std::optional<std::vector<std::uint32_t>> best_;
  Cost best_cost_ = ~Cost{0};
};

/// The smallest capacity that would do (proven if the search completes), by balancing weights instead of costs.
[[nodiscard]] inline Infeasible capacity_verdict(const Problem& problem, std::uint64_t max_nodes) {
  Problem weights = problem;
  weights.capacity = std::numeric_limits<std::uint64_t>::max();
  weights.speed.clear();
  // Items must descend in what is balanced.
  std::vector<std::uint64_t> of_item;
  for (const Problem::Item& item : problem.items) of_item.push_back(item.weight);
  const std::vector<std::uint32_t> order = descending_order(of_item);
  for (std::size_t i = 0; i < order.size(); ++i) {
    weights.items[i] = problem.items[order[i]];
    weights.items[i].cost = weights.items[i].weight;
    weights.items[i].weight = 0;
  }
  const std::string limit =
      "a capacity of " + std::to_string(problem.capacity) + " on each of " + std::to_string(problem.ranks) + " ranks: ";
  auto start = place_constrained(weights);
  const Cost bound = constrained_bound(weights);
  BranchAndBound search(weights, bound, max_nodes);
  if (start) search.start_with(Refiner(weights, std::move(*start), bound, {.target_gap = 0}).run());
  search.run();
  if (!search.best()) return Infeasible(limit + "the groups cannot meet the counts at any capacity");
  const std::string found = std::to_string(search.best_cost());
  return Infeasible(limit + (search.complete() ? "no assignment meets it; the smallest that would do is " + found
                                               : "no assignment was found; " + found + " would do"));
}

}  // namespace detail

/// Throws Infeasible where no assignment meets the constraints (or none was found within the budget: the text says
/// which).
[[nodiscard]] inline Assignment exact(std::span<const Cost> costs, std::uint32_t ranks,
                                      const Constraints& constraints = {}, const ExactOptions& options = {}) {
  const detail::Problem problem = detail::problem_of(costs, ranks, constraints);
  const Cost bound = detail::constrained_bound(problem);
  detail::BranchAndBound search(problem, bound, options.max_nodes);
  if (auto start = detail::place_constrained(problem)) {
    search.start_with(detail::Refiner(problem, std::move(*start), bound, {}).run());
  }
  search.run();
  if (!search.best()) {
    if (problem.capacity != std::numeric_limits<std::uint64_t>::max())
      throw detail::capacity_verdict(problem, options.max_nodes);
    throw Infeasible("no assignment of whole groups meets the counts of " + std::to_string(problem.min_count) + " to " +
                     std::to_string(problem.max_count) + " samples a rank; free counts, or smaller groups, would do");
  }
  Assignment result =
      detail::assignment_of(problem, costs, *search.best(), search.complete() ? "exact" : "branch-and-bound");
  if (search.complete()) result.lower_bound = result.max_cost();
  return result;
}

namespace detail {

/// Branch and bound where a rank's cost is a function of its batch: costs that do not add up, but never fall.
class BatchSearch {
 public:
  BatchSearch(std::span<const ConvPackedCost::Batch> samples, std::span<const std::uint32_t> order, std::uint32_t ranks,
              const ConvPackedCost& cost, Assignment start, std::uint64_t max_nodes)
      : samples_(samples),
        order_(order),
        cost_(cost),
        best_(std::move(start)),
        best_cost_(best_.max_cost()),
        nodes_left_(max_nodes),
        rank_of_(samples.size()),
        batch_(ranks) {}

  Assignment run() {
    search(0, 0);
    if (nodes_left_ > 0) best_.solver = "exact";
    return std::move(best_);
  }
  [[nodiscard]] bool complete() const { return nodes_left_ > 0; }

 private:
  void search(std::size_t depth, Cost most) {
    if (depth == order_.size()) {
      best_.rank_of = rank_of_;
      best_cost_ = most;
      return;
    }
    const std::uint32_t sample = order_[depth];
    bool tried_empty = false;
    for (std::uint32_t rank = 0; rank < batch_.size(); ++rank) {
      if (nodes_left_ == 0 || best_cost_ <= best_.lower_bound) return;
      if (batch_[rank].units == 0 && std::exchange(tried_empty, true)) continue;  // empty ranks are alike
      const ConvPackedCost::Batch before = batch_[rank];
      const ConvPackedCost::Batch after = ConvPackedCost::merge(before, samples_[sample]);
      const Cost cost = cost_(after);
      if (cost >= best_cost_) continue;
      --nodes_left_;
      rank_of_[sample] = rank;
      batch_[rank] = after;
      search(depth + 1, std::max(most, cost));
      batch_[rank] = before;
    }
  }

  std::span<const ConvPackedCost::Batch> samples_;
  std::span<const std::uint32_t> order_;
  const ConvPackedCost& cost_;
  Assignment best_;
  Cost best_cost_;
  std::uint64_t nodes_left_;
  std::vector<std::uint32_t> rank_of_;
  std::vector<ConvPackedCost::Batch> batch_;
};

}  // namespace detail

/// The optimum under a convolution + packed cost, or the best found within the budget (solver "exact" only if proven).
[[nodiscard]] inline Assignment exact(std::span<const ConvPackedCost::Batch> samples, std::uint32_t ranks,
                                      const ConvPackedCost& cost, const ExactOptions& options = {}) {
  Assignment start = conv_packed(samples, ranks, cost);
  std::vector<Cost> alone(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) alone[i] = cost(samples[i]);
  const std::vector<std::uint32_t> order = descending_order(alone);
  detail::BatchSearch search(samples, order, ranks, cost, std::move(start), options.max_nodes);
  Assignment result = search.run();
  result.rank_cost = conv_packed_rank_costs(samples, result.rank_of, ranks, cost);
  if (search.complete()) result.lower_bound = result.max_cost();
  return result;
}

}  // namespace orch::balance
