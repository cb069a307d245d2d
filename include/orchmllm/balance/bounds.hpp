// Lower bounds on the largest rank cost of any assignment, for costs that add up.
//
//   mean        ⌈Σ costs / d⌉
//   largest     the largest single cost
//   pigeonhole  of any k·d + 1 samples some rank gets k + 1; of the k·d + 1 largest these cost at least the k + 1
//               smallest among them together
//
// Complexity: O(n) after sorting. Guarantee: never above the optimum. Throws Overflow.
// Source of the pigeonhole bound: textbook multiprocessor scheduling (P || Cmax).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "orchmllm/base/cost.hpp"

namespace orch::balance {

/// `descending` is the order of `costs` from base/sort.hpp. Requires ranks > 0.
[[nodiscard]] inline Cost lower_bound(std::span<const Cost> costs, std::span<const std::uint32_t> descending,
                                      std::uint32_t ranks) {
  if (costs.empty()) return 0;
  Cost bound = std::max(ceil_div(checked_sum(costs), ranks), costs[descending[0]]);
  for (std::size_t k = 1; k * ranks < costs.size(); ++k) {
    Cost smallest = 0;  // of the k·d + 1 largest, the k + 1 smallest
    for (std::size_t i = k * ranks - k; i <= k * ranks; ++i) smallest = checked_add(smallest, costs[descending[i]]);
    bound = std::max(bound, smallest);
  }
  return bound;
}

}  // namespace orch::balance
