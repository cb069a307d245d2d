// Exact solver for padded costs b · (α·m + β·m²): smallest possible largest rank cost.
//
// Some optimal solution is contiguous in descending order of length (exchange argument: swapping samples so that one
// rank holds the longer ones never raises its longest length and never lengthens the other's). So the fewest ranks that
// keep every cost ≤ B come from filling ranks in that order, and binary search finds the smallest B that needs ≤ d.
// Complexity: O(n + d log(max bound)) after an O(n) radix sort. Guarantee: optimal, gap 0.
// Source: OrchMLLM (arXiv 2503.23830), padded case.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/sort.hpp"
#include "orchmllm/cost/padded.hpp"

namespace orch::balance {

namespace detail {

/// How many samples whose longest is `longest` fit under `bound` on one rank.
[[nodiscard]] inline std::size_t padded_fit(Cost per_sample, Cost bound, std::size_t left) {
  return per_sample == 0 ? left : std::min<std::size_t>(left, bound / per_sample);
}

[[nodiscard]] inline bool padded_feasible(std::span<const Cost> per_sample_descending, Cost bound,
                                          std::uint32_t ranks) {
  std::size_t placed = 0;
  for (std::uint32_t used = 0; used < ranks && placed < per_sample_descending.size(); ++used) {
    const std::size_t fit = padded_fit(per_sample_descending[placed], bound, per_sample_descending.size() - placed);
    if (fit == 0) return false;
    placed += fit;
  }
  return placed == per_sample_descending.size();
}

}  // namespace detail

/// Cost of every rank under the padded cost.
[[nodiscard]] inline std::vector<Cost> padded_rank_costs(std::span<const std::uint64_t> lengths,
                                                         std::span<const std::uint32_t> rank_of, std::uint32_t ranks,
                                                         const PaddedCost& cost) {
  std::vector<std::uint64_t> count(ranks, 0);
  std::vector<std::uint64_t> longest(ranks, 0);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    ++count[rank_of[i]];
    longest[rank_of[i]] = std::max(longest[rank_of[i]], lengths[i]);
  }
  std::vector<Cost> costs(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) costs[rank] = cost(count[rank], longest[rank]);
  return costs;
}

[[nodiscard]] inline Assignment padded(std::span<const std::uint64_t> lengths, std::uint32_t ranks,
                                       const PaddedCost& cost = {}) {
  require_ranks(ranks);
  const std::vector<std::uint32_t> order = descending_order(lengths);
  std::vector<Cost> per_sample(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) per_sample[i] = cost.per_sample(lengths[order[i]]);

  // Equal shares in sorted order are feasible, the longest sample alone is necessary.
  Cost low = per_sample.empty() ? 0 : per_sample[0];
  Cost high = per_sample.empty() ? 0 : checked_mul(ceil_div(per_sample.size(), ranks), per_sample[0]);
  while (low < high) {
    const Cost middle = low + (high - low) / 2;
    if (detail::padded_feasible(per_sample, middle, ranks)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }

  std::vector<std::uint32_t> rank_of(lengths.size());
  std::uint32_t rank = 0;
  for (std::size_t placed = 0; placed < order.size(); ++rank) {
    const std::size_t fit = detail::padded_fit(per_sample[placed], low, order.size() - placed);
    for (std::size_t i = placed; i < placed + fit; ++i) rank_of[order[i]] = rank;
    placed += fit;
  }
  std::vector<Cost> rank_cost = padded_rank_costs(lengths, rank_of, ranks, cost);
  return {ranks, std::move(rank_of), std::move(rank_cost), low, "padded-exact"};
}

}  // namespace orch::balance
