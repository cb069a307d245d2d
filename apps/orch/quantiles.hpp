// A distribution by its quantile function, piecewise linear: value(p) at knots p = 0 … 1.
//
// Two knots at one p are a gap between values, two at one value an atom (p_right − p_left of the draws have this
// value). Additions, multiplications and divisions only, each rounded once: the same numbers on every machine.
// Complexity: O(1) a draw for smooth tables, O(log knots) at worst; O(knots) memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace orch::apps {

class Quantiles {
 public:
  Quantiles() : Quantiles({0, 1}, {0, 0}) {}

  /// Both ascend or stay; probabilities go from 0 to 1.
  Quantiles(std::vector<double> probability, std::vector<double> value);

  /// The value at u from [0, 1].
  [[nodiscard]] double at(double u) const {
    const auto part = static_cast<std::size_t>(u * parts);
    const auto first = probability_.begin() + guide_[part];
    const auto last = probability_.begin() + guide_[part + 1];
    const auto found = static_cast<std::size_t>(std::upper_bound(first, last, u) - probability_.begin());
    const std::size_t right = std::clamp<std::size_t>(found, 1, value_.size() - 1);
    return std::min(value_[right], value_[right - 1] + (u - probability_[right - 1]) * slope_[right]);
  }

  /// Probability of values below `value`, and of values up to it.
  [[nodiscard]] double below(double value) const;
  [[nodiscard]] double up_to(double value) const;

  [[nodiscard]] std::span<const double> probabilities() const { return probability_; }
  [[nodiscard]] std::span<const double> values() const { return value_; }

 private:
  static constexpr std::size_t parts = 128;

  std::vector<double> probability_;
  std::vector<double> value_;
  std::vector<double> slope_;                     ///< of the piece that ends at a knot
  std::array<std::uint32_t, parts + 2> guide_{};  ///< knots at probabilities up to part / parts
};

/// The distribution that draws from part k with probability weight[k] / Σ weights: the weighted sum of the
/// distribution functions, exact up to rounding. Complexity: O(knots · parts · log knots).
[[nodiscard]] Quantiles mixture(std::span<const Quantiles> parts, std::span<const double> weights);

/// Values outside become the bound.
[[nodiscard]] Quantiles clamped(const Quantiles& quantiles, double low, double high);

}  // namespace orch::apps
