// A seeded random stream that gives the same numbers on every machine (std distributions do not).
//
// SplitMix64 (Steele, Lea, Flood 2014): period 2^64, passes BigCrush, one multiplication chain a number.
// Complexity: O(1) a number; permutation is O(n).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "orchmllm/base/hash.hpp"

namespace orch {

class Random {
 public:
  /// Different streams of one seed are independent for all practical purposes.
  explicit constexpr Random(std::uint64_t seed, std::uint64_t stream = 0) noexcept
      : state_(mix64(seed + 0x9e3779b97f4a7c15ULL) ^ mix64(stream * 0xd1342543de82ef95ULL + 1)) {}

  constexpr std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15ULL;
    return mix64(state_);
  }

  /// Uniform in [0, 1) with 53 bits.
  constexpr double uniform() noexcept { return static_cast<double>(next() >> 11U) * 0x1p-53; }

  /// Uniform in [0, bound), exactly (numbers of the incomplete last range are drawn again). Requires bound > 0.
  constexpr std::uint64_t below(std::uint64_t bound) noexcept {
    const std::uint64_t incomplete = (0 - bound) % bound;  // 2^64 mod bound
    std::uint64_t number = next();
    while (number < incomplete) number = next();
    return number % bound;
  }

 private:
  std::uint64_t state_;
};

/// A uniform permutation of 0 … n − 1 (Fisher–Yates).
[[nodiscard]] inline std::vector<std::uint32_t> permutation(std::uint32_t n, Random random) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  for (std::uint32_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace orch
