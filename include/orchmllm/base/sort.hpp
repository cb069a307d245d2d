// Stable order of samples by descending cost: the order in which every solver visits them.
//
// Least-significant-digit radix sort on 11-bit digits; digits in which all costs agree are skipped, so lengths below
// 2^22 take two passes. Where cost and index fit into one 64-bit word together, words of 8 bytes are sorted, else pairs
// of
// 16. Equal costs keep their input order, which makes every plan unique.
// Complexity: O(n) time per differing digit, 16 or 32 bytes a sample of scratch memory.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/base/cost.hpp"

namespace orch {

/// Number of samples as the 32-bit index that solvers use. Throws InvalidInput above 2^32 − 1.
[[nodiscard]] inline std::uint32_t sample_count(std::size_t samples) {
  if (samples > std::numeric_limits<std::uint32_t>::max()) {
    throw InvalidInput("too many samples in one phase: " + std::to_string(samples) + ", at most 4294967295");
  }
  return static_cast<std::uint32_t>(samples);
}

namespace detail {

/// Sorts by the bits `low` … `high` − 1 of `key(item)` in which `differing` has ones; stable.
template <class Item, class Key>
void radix_sort(std::vector<Item>& items, Cost differing, unsigned low, unsigned high, Key&& key) {
  constexpr unsigned digit_bits = 11;
  constexpr std::size_t buckets = std::size_t{1} << digit_bits;
  std::vector<Item> scratch(items.size());
  for (unsigned shift = low; shift < high && (differing >> shift) != 0; shift += digit_bits) {
    if (((differing >> shift) & (buckets - 1)) == 0) continue;
    std::array<std::uint32_t, buckets> start{};
    for (const Item& item : items) ++start[(key(item) >> shift) & (buckets - 1)];
    std::uint32_t position = 0;
    for (auto& count : start) position += std::exchange(count, position);
    for (const Item& item : items) scratch[start[(key(item) >> shift) & (buckets - 1)]++] = item;
    items.swap(scratch);
  }
}

}  // namespace detail

/// Indices of `costs` by descending cost, equal costs in input order.
[[nodiscard]] inline std::vector<std::uint32_t> descending_order(std::span<const Cost> costs) {
  const std::uint32_t n = sample_count(costs.size());
  std::vector<std::uint32_t> order(n);
  if (n == 0) return order;
  Cost all_and = ~Cost{0};
  Cost all_or = 0;
  for (const Cost cost : costs) {
    all_and &= cost;
    all_or |= cost;
  }
  const Cost differing = all_and ^ all_or;
  // An ascending sort of the complement is a descending sort that keeps equal costs in input order.
  const auto cost_bits = static_cast<unsigned>(std::bit_width(all_or));
  const auto index_bits = static_cast<unsigned>(std::bit_width(n - 1));
  if (cost_bits + index_bits <= 64) {
    const Cost cost_mask = cost_bits == 64 ? ~Cost{0} : (Cost{1} << cost_bits) - 1;
    std::vector<Cost> words(n);
    for (std::uint32_t i = 0; i < n; ++i) words[i] = (~costs[i] & cost_mask) << index_bits | i;
    constexpr std::uint32_t few = 512;  // clearing a radix sort's counters would cost more than sorting
    if (n <= few) {
      std::sort(words.begin(), words.end());
    } else {
      detail::radix_sort(words, differing << index_bits, index_bits, cost_bits + index_bits,
                         [](Cost word) { return word; });
    }
    const Cost index_mask = (Cost{1} << index_bits) - 1;
    for (std::uint32_t i = 0; i < n; ++i) order[i] = static_cast<std::uint32_t>(words[i] & index_mask);
    return order;
  }
  std::vector<std::pair<Cost, std::uint32_t>> pairs(n);
  for (std::uint32_t i = 0; i < n; ++i) pairs[i] = {~costs[i], i};
  detail::radix_sort(pairs, differing, 0, 64, [](const auto& pair) { return pair.first; });
  for (std::uint32_t i = 0; i < n; ++i) order[i] = pairs[i].second;
  return order;
}

}  // namespace orch
