// Log-normal lengths for benchmarks, the same on every machine up to the last digit of the C library's exp and log.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "orchmllm/base/random.hpp"

namespace orch::bench {

/// exp(N(ln 500, σ²)) tokens, at least 1, at most `longest`.
[[nodiscard]] inline std::vector<std::uint64_t> log_normal_lengths(std::size_t n, double sigma, std::uint64_t seed,
                                                                   std::uint64_t longest = 1U << 30U) {
  Random random(seed);
  std::vector<std::uint64_t> lengths(n);
  for (std::uint64_t& length : lengths) {
    const double normal =
        std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
    const double tokens = std::exp(std::log(500.0) + sigma * normal);
    length = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(tokens), 1, longest);
  }
  return lengths;
}

}  // namespace orch::bench
