// Stable order of samples by descending cost: the order in which every solver visits them.
//
// Least-significant-digit radix sort on 11-bit digits; digits in which all costs agree are skipped, so lengths below
// 2^22 take two passes. Equal costs keep their input order, which makes every plan unique.
// Complexity: O(n) time per differing digit, 24 bytes a sample of scratch memory.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/base/cost.hpp"

namespace orch {

namespace detail {

struct KeyedIndex {
  Cost key;
  std::uint32_t index;
};

}  // namespace detail

/// Number of samples as the 32-bit index that solvers use. Throws InvalidInput above 2^32 − 1.
[[nodiscard]] inline std::uint32_t sample_count(std::size_t samples) {
  if (samples > std::numeric_limits<std::uint32_t>::max()) {
    throw InvalidInput("too many samples in one phase: " + std::to_string(samples) + ", at most 4294967295");
  }
  return static_cast<std::uint32_t>(samples);
}

/// Indices of `costs` by descending cost, equal costs in input order.
[[nodiscard]] inline std::vector<std::uint32_t> descending_order(std::span<const Cost> costs) {
  constexpr unsigned digit_bits = 11;
  constexpr std::size_t buckets = std::size_t{1} << digit_bits;
  constexpr Cost digit_mask = buckets - 1;

  const std::uint32_t n = sample_count(costs.size());
  std::vector<detail::KeyedIndex> items(n);
  Cost all_and = ~Cost{0};
  Cost all_or = 0;
  for (std::uint32_t i = 0; i < n; ++i) {
    // An ascending sort of the complement is a descending sort that keeps equal costs in input order.
    const Cost key = ~costs[i];
    items[i] = {key, i};
    all_and &= key;
    all_or |= key;
  }

  const Cost differing = n == 0 ? 0 : all_and ^ all_or;
  std::vector<detail::KeyedIndex> scratch(n);
  for (unsigned shift = 0; shift < 64 && (differing >> shift) != 0; shift += digit_bits) {
    if (((differing >> shift) & digit_mask) == 0) continue;
    std::array<std::uint32_t, buckets> start{};
    for (const auto& item : items) ++start[(item.key >> shift) & digit_mask];
    std::uint32_t position = 0;
    for (auto& count : start) position += std::exchange(count, position);
    for (const auto& item : items) scratch[start[(item.key >> shift) & digit_mask]++] = item;
    items.swap(scratch);
  }

  std::vector<std::uint32_t> order(n);
  for (std::uint32_t i = 0; i < n; ++i) order[i] = items[i].index;
  return order;
}

}  // namespace orch
