// Lower bound on the number of bins that samples need under a cap in tokens: what makes a number of micro-batches
// proven.
//
// Units: tokens. Complexity: O(n log n) for n samples in descending order. Guarantee: never above the fewest bins of
// any packing. Source: Martello, Toth, Knapsack Problems (1990), bound L2, and the pigeonhole argument. Throws
// Overflow.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "orchmllm/base/cost.hpp"

namespace orch::balance {

/// Fewest bins of `cap` tokens that any packing needs. Three arguments, each for every threshold a ≤ cap / 2: samples
/// above cap − a are alone; of those above cap / 2 no two share a bin; what the samples between a and cap / 2 need
/// beyond the room left by the latter needs further bins (Martello, Toth 1990, bound L2); and of the samples above
/// cap / (k + 1) at most k share a bin. `descending` is the order of `tokens`, none of which is above the cap.
[[nodiscard]] inline std::uint64_t bins_bound(std::span<const std::uint64_t> tokens,
                                              std::span<const std::uint32_t> descending, std::uint64_t cap) {
  const std::size_t n = descending.size();
  const auto at = [&](std::size_t i) { return tokens[descending[i]]; };
  std::size_t big = 0;  // samples above cap / 2: the first `big`
  while (big < n && at(big) > cap - at(big)) ++big;

  std::uint64_t bound = n == 0 ? 0 : std::max<std::uint64_t>(big, 1);
  // From a = the smallest small sample's tokens up: `alone` shrinks towards the front as a falls, so a falls here.
  std::uint64_t small_sum = 0;  // tokens between a and cap / 2
  std::size_t alone = 0;        // samples above cap − a: the first `alone`
  std::uint64_t room = 0;       // left beside the big samples that are not alone
  for (std::size_t i = 0; i < big; ++i) room += cap - at(i);
  std::uint64_t room_alone = 0;
  std::vector<std::uint64_t> room_before(big + 1, 0);
  for (std::size_t i = 0; i < big; ++i) room_before[i + 1] = room_before[i] + (cap - at(i));
  alone = big;
  for (std::size_t i = big; i < n; ++i) {
    const std::uint64_t a = at(i);
    small_sum = checked_add(small_sum, a);
    if (i + 1 < n && at(i + 1) == a) continue;
    while (alone > 0 && at(alone - 1) <= cap - a) --alone;
    room_alone = room_before[alone];
    const std::uint64_t beside = room - room_alone;
    if (small_sum > beside) bound = std::max(bound, big + ceil_div(small_sum - beside, cap));
  }
  for (std::size_t k = 2; k < n && k <= cap; ++k) {
    // Samples above cap / (k + 1), that is with (k + 1) · tokens > cap.
    const std::uint64_t limit = cap / (k + 1);
    const auto above = std::partition_point(descending.begin(), descending.end(),
                                            [&](std::uint32_t sample) { return tokens[sample] > limit; });
    const auto count = static_cast<std::uint64_t>(above - descending.begin());
    bound = std::max(bound, ceil_div(count, k));
    if (count == n) break;  // larger k only divides the same count by more
  }
  return bound;
}

}  // namespace orch::balance
