// Integer costs with overflow detection.
//
// A cost is an unsigned 64-bit integer in units that the cost model chooses; only ratios of costs of one model mean
// anything. Integers make a plan the same, bit for bit, on every rank, compiler and optimisation level.
// Every sum or product that could pass 2^64 − 1 goes through these functions, which throw `Overflow`.
// Complexity: O(1) each, one branch; checked_sum is O(n).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "orchmllm/base/error.hpp"

namespace orch {

using Cost = std::uint64_t;

[[nodiscard]] inline Cost checked_add(Cost a, Cost b) {
  Cost sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    throw Overflow("cost overflow: " + std::to_string(a) + " + " + std::to_string(b) +
                   " does not fit into 64 bits; scale the cost coefficients down");
  }
  return sum;
}

[[nodiscard]] inline Cost checked_mul(Cost a, Cost b) {
  Cost product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    throw Overflow("cost overflow: " + std::to_string(a) + " * " + std::to_string(b) +
                   " does not fit into 64 bits; scale the cost coefficients down");
  }
  return product;
}

[[nodiscard]] inline Cost checked_sum(std::span<const Cost> costs) {
  Cost sum = 0;
  for (const Cost cost : costs) sum = checked_add(sum, cost);
  return sum;
}

/// ⌈a / b⌉ without the overflow of (a + b − 1). Requires b > 0.
[[nodiscard]] constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) noexcept {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace orch
