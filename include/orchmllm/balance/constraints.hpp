// Constraints on an assignment, as plain data, and what every constrained solver needs to know of them.
//
//   counts     free, equal, near-equal (differ by at most one), or any minimum and maximum of samples per rank
//   capacity   a hard cap on a second quantity per rank (tokens → memory), beside the cost that is balanced
//   speeds     ranks of unequal speed: a rank's cost is ⌈its samples' costs · fastest speed / its speed⌉
//   groups     samples with equal keys stay together
//
// All combine, with one exception: with groups, counts count samples, and "equal" must be met by whole groups.
// Units: capacity in the caller's unit, speeds are integers of which only ratios matter.
// Complexity: O(n log n) to normalise. Throws InvalidInput for contradictory input, Infeasible where counts cannot be
// met.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/sort.hpp"

namespace orch {

enum class Counts : std::uint8_t { free, equal, near_equal };

struct Constraints {
  Counts counts = Counts::free;
  std::uint32_t min_per_rank = 0;
  std::uint32_t max_per_rank = std::numeric_limits<std::uint32_t>::max();
  std::span<const std::uint64_t> weights = {};  ///< sample → second quantity; empty = no capacity
  std::uint64_t capacity = std::numeric_limits<std::uint64_t>::max();  ///< of one rank, in units of weights
  std::span<const std::uint32_t> speeds = {};                          ///< rank → speed; empty = all equal
  std::span<const std::uint32_t> groups = {};                          ///< sample → key; empty = every sample alone

  [[nodiscard]] bool unconstrained() const {
    return counts == Counts::free && min_per_rank == 0 && max_per_rank == std::numeric_limits<std::uint32_t>::max() &&
           weights.empty() && speeds.empty() && groups.empty();
  }
};

namespace balance {

namespace detail {

/// ⌈a · b / c⌉ through 128 bits. Throws Overflow.
[[nodiscard]] inline Cost mul_div_ceil(Cost a, Cost b, Cost c) {
  __extension__ using Wide = unsigned __int128;
  const Wide value = (static_cast<Wide>(a) * b + (c - 1)) / c;
  if (value > std::numeric_limits<Cost>::max())
    throw Overflow("a cost divided by a rank's speed does not fit into 64 bits");
  return static_cast<Cost>(value);
}

/// A balancing problem with groups melted into items and policies resolved into numbers.
struct Problem {
  struct Item {
    Cost cost = 0;
    std::uint64_t weight = 0;
    std::uint32_t count = 1;  ///< samples
  };
  std::vector<Item> items;                          ///< by descending cost, stable
  std::vector<std::vector<std::uint32_t>> members;  ///< item → samples; empty where every item is one sample
  std::vector<std::uint32_t> sample;                ///< item → its sample, where members is empty
  std::uint32_t ranks = 0;
  std::uint32_t samples = 0;
  std::uint32_t min_count = 0;
  std::uint32_t max_count = 0;
  std::uint32_t ranks_at_max = 0;  ///< how many ranks may hold max_count (near-equal counts); else all
  std::uint64_t capacity = 0;
  std::vector<std::uint32_t> speed;  ///< rank → speed, empty = equal
  std::uint32_t fastest = 1;

  /// Cost of a rank whose samples cost `load` together.
  [[nodiscard]] Cost rank_cost(std::uint32_t rank, Cost load) const {
    return speed.empty() || speed[rank] == fastest ? load : mul_div_ceil(load, fastest, speed[rank]);
  }
  [[nodiscard]] std::vector<std::uint32_t> expand(std::span<const std::uint32_t> rank_of_item) const {
    std::vector<std::uint32_t> rank_of(samples);
    for (std::size_t item = 0; item < items.size(); ++item) {
      if (members.empty()) {
        rank_of[sample[item]] = rank_of_item[item];
      } else {
        for (const std::uint32_t one : members[item]) rank_of[one] = rank_of_item[item];
      }
    }
    return rank_of;
  }
};

inline void require_size(std::size_t got, std::size_t expected, const char* what) {
  if (got != expected) {
    throw InvalidInput(std::string(what) + ": " + std::to_string(got) + " given, " + std::to_string(expected) +
                       " needed");
  }
}

inline void resolve_counts(const Constraints& constraints, Problem& problem) {
  const std::uint32_t n = problem.samples;
  const std::uint32_t d = problem.ranks;
  problem.min_count = constraints.min_per_rank;
  problem.max_count = std::min(constraints.max_per_rank, n);
  problem.ranks_at_max = d;
  if (constraints.min_per_rank > constraints.max_per_rank) {
    throw InvalidInput("min_per_rank " + std::to_string(constraints.min_per_rank) + " is above max_per_rank " +
                       std::to_string(constraints.max_per_rank));
  }
  if (constraints.counts == Counts::equal && n % d != 0) {
    throw Infeasible("equal counts: " + std::to_string(n) + " samples cannot be divided by " + std::to_string(d) +
                     " ranks; near-equal counts of " + std::to_string(n / d) + " and " + std::to_string(n / d + 1) +
                     ", or " + std::to_string(n - n % d) + " samples, would do");
  }
  if (constraints.counts != Counts::free) {
    const std::uint32_t most = static_cast<std::uint32_t>(ceil_div(n, d));
    if (problem.min_count > n / d || (n > 0 && problem.max_count < most)) {
      throw Infeasible("counts of " + std::to_string(n / d) + " to " + std::to_string(most) + " do not lie within " +
                       std::to_string(constraints.min_per_rank) + " to " + std::to_string(constraints.max_per_rank));
    }
    problem.min_count = n / d;
    problem.max_count = most;
    if (n % d != 0) problem.ranks_at_max = n % d;
  }
  if (std::uint64_t{problem.min_count} * d > n) {
    throw Infeasible("at least " + std::to_string(problem.min_count) + " samples on each of " + std::to_string(d) +
                     " ranks: " + std::to_string(n) + " samples are too few; a minimum of " + std::to_string(n / d) +
                     ", or " + std::to_string(std::uint64_t{problem.min_count} * d) + " samples, would do");
  }
  if (std::uint64_t{problem.max_count} * d < n) {
    throw Infeasible("at most " + std::to_string(problem.max_count) + " samples on each of " + std::to_string(d) +
                     " ranks: " + std::to_string(n) + " samples are too many; a maximum of " +
                     std::to_string(ceil_div(n, d)) + " would do");
  }
}

/// Throws for sizes that do not fit, speeds of zero, counts that cannot be met and samples above the capacity.
[[nodiscard]] inline Problem problem_of(std::span<const Cost> costs, std::uint32_t ranks,
                                        const Constraints& constraints) {
  require_ranks(ranks);
  Problem problem;
  problem.ranks = ranks;
  problem.samples = sample_count(costs.size());
  problem.capacity = constraints.weights.empty() ? std::numeric_limits<std::uint64_t>::max() : constraints.capacity;
  if (!constraints.weights.empty()) require_size(constraints.weights.size(), costs.size(), "weights");
  if (!constraints.groups.empty()) require_size(constraints.groups.size(), costs.size(), "groups");
  if (!constraints.speeds.empty()) {
    require_size(constraints.speeds.size(), ranks, "speeds");
    problem.speed.assign(constraints.speeds.begin(), constraints.speeds.end());
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (problem.speed[rank] == 0)
        throw InvalidInput("the speed of rank " + std::to_string(rank) + " is 0; it must be above 0");
    }
    problem.fastest = *std::max_element(problem.speed.begin(), problem.speed.end());
  }
  resolve_counts(constraints, problem);

  // One item per sample or per group, in order of first appearance, then by descending cost.
  std::vector<Problem::Item> items;
  std::vector<std::vector<std::uint32_t>> members;
  if (constraints.groups.empty()) {
    for (std::size_t i = 0; i < costs.size(); ++i) {
      items.push_back({costs[i], constraints.weights.empty() ? 0 : constraints.weights[i], 1});
    }
  } else {
    std::vector<std::uint32_t> by_key(costs.size());
    std::iota(by_key.begin(), by_key.end(), 0U);
    std::stable_sort(by_key.begin(), by_key.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return constraints.groups[a] < constraints.groups[b]; });
    for (std::size_t i = 0; i < by_key.size(); ++i) {
      const std::uint32_t one = by_key[i];
      if (i == 0 || constraints.groups[one] != constraints.groups[by_key[i - 1]]) {
        items.push_back({0, 0, 0});
        members.emplace_back();
      }
      items.back().cost = checked_add(items.back().cost, costs[one]);
      if (!constraints.weights.empty())
        items.back().weight = checked_add(items.back().weight, constraints.weights[one]);
      ++items.back().count;
      members.back().push_back(one);
    }
  }
  std::vector<Cost> item_costs(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) item_costs[i] = items[i].cost;
  for (const std::uint32_t i : descending_order(item_costs)) {
    problem.items.push_back(items[i]);
    if (members.empty()) {
      problem.sample.push_back(i);
    } else {
      problem.members.push_back(std::move(members[i]));
    }
  }
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    if (problem.items[i].weight <= problem.capacity) continue;
    const std::uint32_t one = problem.members.empty() ? problem.sample[i] : problem.members[i].front();
    throw Infeasible((problem.members.empty() ? "sample " : "the group of sample ") + std::to_string(one) + " weighs " +
                     std::to_string(problem.items[i].weight) + ", above the capacity of " +
                     std::to_string(problem.capacity) + "; a capacity of at least " +
                     std::to_string(problem.items[i].weight) + " is needed");
  }
  return problem;
}

/// Bound from counts: with at least m samples a rank, the j largest lie on j ranks, which then hold at least m · j
/// samples together, or two of them share a rank with m − 2 others. The cheaper of both cases holds for every j.
[[nodiscard]] inline Cost counts_bound(const Problem& problem) {
  const std::size_t m = problem.min_count;
  const std::size_t n = problem.items.size();
  const auto smallest = [&](std::size_t from, std::size_t to) {  // of the items from the end
    Cost sum = 0;
    for (std::size_t i = from; i < to; ++i) sum = checked_add(sum, problem.items[n - 1 - i].cost);
    return sum;
  };
  const Cost beside_two = smallest(0, m - 2);
  Cost bound = 0;
  Cost sum = 0;  // the j largest and the (m − 1) · j smallest
  for (std::size_t j = 1; j <= problem.ranks; ++j) {
    sum = checked_add(sum, problem.items[j - 1].cost);
    sum = checked_add(sum, smallest((m - 1) * (j - 1), (m - 1) * j));
    const Cost apart = ceil_div(sum, j);
    const Cost shared =
        j == 1 ? apart : checked_add(checked_add(problem.items[j - 2].cost, problem.items[j - 1].cost), beside_two);
    bound = std::max(bound, std::min(apart, shared));
  }
  return bound;
}

/// Lower bound under speeds, counts and groups (capacity is left out: it can only raise the optimum).
[[nodiscard]] inline Cost constrained_bound(const Problem& problem) {
  if (problem.items.empty()) return 0;
  const std::uint32_t d = problem.ranks;
  Cost total = 0;
  for (const Problem::Item& item : problem.items) total = checked_add(total, item.cost);
  if (!problem.speed.empty()) {
    // All ranks together do `total` in no less than total · fastest / Σ speeds; the largest item runs on the fastest
    // rank.
    Cost speeds = 0;
    for (const std::uint32_t speed : problem.speed) speeds += speed;
    return std::max(mul_div_ceil(total, problem.fastest, speeds), problem.items[0].cost);
  }
  Cost bound = std::max(ceil_div(total, d), problem.items[0].cost);
  for (std::size_t k = 1; k * d < problem.items.size(); ++k) {
    Cost smallest = 0;
    for (std::size_t i = k * d - k; i <= k * d; ++i) smallest = checked_add(smallest, problem.items[i].cost);
    bound = std::max(bound, smallest);
  }
  if (problem.members.empty() && problem.min_count > 1) bound = std::max(bound, counts_bound(problem));
  return bound;
}

/// The result for items → ranks, with true costs.
[[nodiscard]] inline Assignment assignment_of(const Problem& problem, std::span<const Cost> costs,
                                              std::span<const std::uint32_t> rank_of_item, std::string solver) {
  Assignment result{problem.ranks, problem.expand(rank_of_item), {}, constrained_bound(problem), std::move(solver)};
  result.rank_cost = rank_costs(costs, result.rank_of, problem.ranks);
  for (std::uint32_t rank = 0; rank < problem.ranks; ++rank) {
    result.rank_cost[rank] = problem.rank_cost(rank, result.rank_cost[rank]);
  }
  return result;
}

}  // namespace detail

}  // namespace balance

}  // namespace orch
