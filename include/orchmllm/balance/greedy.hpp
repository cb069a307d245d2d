// Longest-processing-time-first (LPT) greedy for costs that add up: samples by descending cost, each to the least
// loaded rank.
//
// Complexity: O(n log d) after an O(n) radix sort; 40 bytes a sample. Guarantee: max cost ≤ (4/3 − 1/(3d)) · optimum
// (Graham 1969). Ties go to the lower rank, equal costs in input order: the plan is unique.
//
//   std::vector<orch::Cost> costs{9, 8, 7, 6, 5, 5, 4, 3};
//   const orch::Assignment plan = orch::balance::greedy(costs, 3);
//   // plan.rank_of[sample] → rank, plan.max_cost(), plan.gap()
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/balance/bounds.hpp"
#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/sort.hpp"

namespace orch::balance {

namespace detail {

/// Ranks ordered by (load, rank); the least loaded one is on top. A four-way heap: half the levels of a binary one,
/// and the four children share a cache line.
class LeastLoaded {
 public:
  explicit LeastLoaded(std::uint32_t ranks) : heap_(ranks) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) heap_[rank] = {0, rank};
  }

  [[nodiscard]] std::uint32_t top() const { return heap_[0].rank; }
  [[nodiscard]] Cost load() const { return heap_[0].load; }

  /// Replaces the top's load, which may only grow.
  void update_top(Cost load) {
    const Entry moved{load, heap_[0].rank};
    std::size_t hole = 0;
    const std::size_t n = heap_.size();
    for (std::size_t first = 1; first < n; first = 4 * hole + 1) {
      std::size_t least = first;
      const std::size_t last = first + 4 < n ? first + 4 : n;
      for (std::size_t child = first + 1; child < last; ++child) {
        if (heap_[child] < heap_[least]) least = child;
      }
      if (moved < heap_[least]) break;
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = moved;
  }

 private:
  struct Entry {
    Cost load = 0;
    std::uint32_t rank = 0;
    [[nodiscard]] bool operator<(const Entry& other) const {
      return load != other.load ? load < other.load : rank < other.rank;
    }
  };
  std::vector<Entry> heap_;
};

}  // namespace detail

[[nodiscard]] inline Assignment greedy(std::span<const Cost> costs, std::uint32_t ranks) {
  require_ranks(ranks);
  const std::vector<std::uint32_t> order = descending_order(costs);
  std::vector<std::uint32_t> rank_of(costs.size());
  detail::LeastLoaded least(ranks);
  for (const std::uint32_t sample : order) {
    rank_of[sample] = least.top();
    least.update_top(checked_add(least.load(), costs[sample]));
  }
  std::vector<Cost> rank_cost = rank_costs(costs, rank_of, ranks);
  return {ranks, std::move(rank_of), std::move(rank_cost), lower_bound(costs, order, ranks), "greedy"};
}

}  // namespace orch::balance
