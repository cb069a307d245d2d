// Greedy assignment under constraints: LPT that respects counts, capacity, speeds and groups.
//
// Samples (or groups) by descending cost, each to the rank that would finish it first among those where it is allowed.
// Counts alone keep LPT's speed; capacity and speeds look at every rank. Where the capacity leaves no place in that
// order, samples are placed by descending weight instead, the classic packing order, and refine.hpp balances costs
// afterwards. Complexity: O(n log d) with counts alone, O(n · d) else. Guarantee: constraints hold. Throws Infeasible,
// naming a capacity or counts that would do; for a capacity "the smallest" only where an exact search proved it
// (exact.hpp).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "orchmllm/balance/constraints.hpp"
#include "orchmllm/balance/greedy.hpp"

namespace orch::balance {

namespace detail {

/// Where an item may go while an assignment is built item by item.
class Placer {
 public:
  explicit Placer(const Problem& problem)
      : problem_(problem),
        load_(problem.ranks, 0),
        count_(problem.ranks, 0),
        weight_(problem.ranks, 0),
        left_(problem.samples),
        missing_(std::uint64_t{problem.min_count} * problem.ranks) {}

  [[nodiscard]] bool allowed(const Problem::Item& item, std::uint32_t rank) const {
    if (weight_[rank] + item.weight > problem_.capacity || count_[rank] + item.count > problem_.max_count) return false;
    if (count_[rank] + item.count == problem_.max_count && at_max_ >= problem_.ranks_at_max) return false;
    // What is left must still be able to fill every rank to its minimum.
    const std::uint32_t lacks = problem_.min_count > count_[rank] ? problem_.min_count - count_[rank] : 0;
    return missing_ - std::min(lacks, item.count) <= left_ - item.count;
  }

  void place(const Problem::Item& item, std::uint32_t rank) {
    const std::uint32_t lacks = problem_.min_count > count_[rank] ? problem_.min_count - count_[rank] : 0;
    missing_ -= std::min(lacks, item.count);
    left_ -= item.count;
    load_[rank] = checked_add(load_[rank], item.cost);
    count_[rank] += item.count;
    weight_[rank] += item.weight;
    if (count_[rank] == problem_.max_count) ++at_max_;
  }

  void remove(const Problem::Item& item, std::uint32_t rank) {
    if (count_[rank] == problem_.max_count) --at_max_;
    load_[rank] -= item.cost;
    count_[rank] -= item.count;
    weight_[rank] -= item.weight;
    left_ += item.count;
    const std::uint32_t lacks = problem_.min_count > count_[rank] ? problem_.min_count - count_[rank] : 0;
    missing_ += std::min(lacks, item.count);
  }

  [[nodiscard]] Cost load(std::uint32_t rank) const { return load_[rank]; }
  [[nodiscard]] std::uint32_t count(std::uint32_t rank) const { return count_[rank]; }
  [[nodiscard]] std::uint64_t weight(std::uint32_t rank) const { return weight_[rank]; }

 private:
  const Problem& problem_;
  std::vector<Cost> load_;
  std::vector<std::uint32_t> count_;
  std::vector<std::uint64_t> weight_;
  std::uint64_t left_;     ///< samples not placed
  std::uint64_t missing_;  ///< samples that ranks lack to their minimum
  std::uint32_t at_max_ = 0;
};

/// Items in the given order, each to the allowed rank with the smallest `key(item, rank)`; nothing if one has no place.
template <class Key>
[[nodiscard]] std::optional<std::vector<std::uint32_t>> place_all(const Problem& problem,
                                                                  std::span<const std::uint32_t> order, Key&& key) {
  std::vector<std::uint32_t> rank_of(problem.items.size());
  Placer placer(problem);
  for (const std::uint32_t item : order) {
    std::optional<std::uint32_t> best;
    std::uint64_t best_key = 0;
    for (std::uint32_t rank = 0; rank < problem.ranks; ++rank) {
      if (!placer.allowed(problem.items[item], rank)) continue;
      const std::uint64_t candidate = key(placer, problem.items[item], rank);
      if (best && candidate >= best_key) continue;
      best = rank;
      best_key = candidate;
    }
    if (!best) return std::nullopt;
    placer.place(problem.items[item], *best);
    rank_of[item] = *best;
  }
  return rank_of;
}

/// LPT where only counts constrain and every item is one sample: ranks close when they are full, and when what is left
/// is needed to fill others. Always succeeds, since resolve_counts() checked the counts.
[[nodiscard]] inline std::vector<std::uint32_t> place_counts(const Problem& problem) {
  std::vector<std::uint32_t> rank_of(problem.items.size());
  std::vector<Cost> load(problem.ranks, 0);
  std::vector<std::uint32_t> count(problem.ranks, 0);
  LeastTree<PairedLoad> least(problem.ranks);
  constexpr Cost closed = ~Cost{0};
  const auto close_at = [&](std::uint32_t limit) {
    for (std::uint32_t rank = 0; rank < problem.ranks; ++rank) {
      if (count[rank] >= limit) least.update(rank, closed);
    }
  };
  std::uint32_t limit = problem.max_count;
  std::uint32_t at_max = 0;
  std::uint64_t left = problem.samples;
  std::uint64_t missing = std::uint64_t{problem.min_count} * problem.ranks;
  for (std::uint32_t item = 0; item < rank_of.size(); ++item) {
    if (left == missing && limit > problem.min_count) close_at(limit = problem.min_count);
    const std::uint32_t rank = least.rank();
    rank_of[item] = rank;
    load[rank] = checked_add(load[rank], problem.items[item].cost);
    if (count[rank] < problem.min_count) --missing;
    --left;
    ++count[rank];
    least.update(rank, count[rank] >= limit ? closed : load[rank]);
    if (count[rank] == problem.max_count && ++at_max == problem.ranks_at_max && limit == problem.max_count &&
        problem.ranks_at_max < problem.ranks) {
      close_at(limit = problem.max_count - 1);
    }
  }
  return rank_of;
}

/// Feasible items → ranks, or nothing if no order tried leads to one.
[[nodiscard]] inline std::optional<std::vector<std::uint32_t>> place_constrained(const Problem& problem) {
  const bool weighted = problem.capacity != std::numeric_limits<std::uint64_t>::max();
  if (!weighted && problem.speed.empty() && problem.members.empty()) return place_counts(problem);
  std::vector<std::uint32_t> order(problem.items.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto finish = [&](const Placer& placer, const Problem::Item& item, std::uint32_t rank) {
    return problem.rank_cost(rank, checked_add(placer.load(rank), item.cost));
  };
  if (auto found = place_all(problem, order, finish)) return found;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return problem.items[a].weight > problem.items[b].weight; });
  const auto emptiest = [](const Placer& placer, const Problem::Item&, std::uint32_t rank) {
    return placer.weight(rank);
  };
  if (auto found = place_all(problem, order, emptiest)) return found;
  const auto fullest = [](const Placer& placer, const Problem::Item&, std::uint32_t rank) {
    return ~placer.weight(rank);
  };
  if (auto found = place_all(problem, order, fullest)) return found;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return problem.items[a].count > problem.items[b].count; });
  const auto fewest = [](const Placer& placer, const Problem::Item&, std::uint32_t rank) { return placer.count(rank); };
  return place_all(problem, order, fewest);
}

}  // namespace detail

}  // namespace orch::balance
