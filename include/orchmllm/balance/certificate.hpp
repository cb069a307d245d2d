// How good rank costs are: the figures that every plan reports of itself.
//
// Units: the cost model's unit; imbalance and gap are ratios. Complexity: O(ranks).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <span>

#include "orchmllm/base/cost.hpp"

namespace orch::balance {

/// 0 where there are no ranks.
[[nodiscard]] inline Cost largest(std::span<const Cost> rank_cost) {
  return rank_cost.empty() ? 0 : *std::max_element(rank_cost.begin(), rank_cost.end());
}

/// 0 where there are no ranks.
[[nodiscard]] inline double mean(std::span<const Cost> rank_cost) {
  double sum = 0;
  for (const Cost cost : rank_cost) sum += static_cast<double>(cost);
  return rank_cost.empty() ? 0 : sum / static_cast<double>(rank_cost.size());
}

/// largest / mean; 1 where every rank is empty.
[[nodiscard]] inline double imbalance(std::span<const Cost> rank_cost) {
  const double average = mean(rank_cost);
  return average > 0 ? static_cast<double>(largest(rank_cost)) / average : 1.0;
}

/// cost / lower bound − 1: at most this far from the optimum; 0 where both are 0. Requires lower_bound ≤ cost.
[[nodiscard]] inline double gap(Cost cost, Cost lower_bound) {
  if (lower_bound == 0) return cost == 0 ? 0.0 : std::numeric_limits<double>::infinity();
  return static_cast<double>(cost - lower_bound) / static_cast<double>(lower_bound);
}

}  // namespace orch::balance
