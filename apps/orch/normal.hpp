// The exponential function and the normal distribution without the C library's mathematics, whose last bits differ
// from machine to machine.
//
// exp_exact: relative error below 1e-15. Φ: a table in steps of 1/256 from −8.5 to 8.5, integrated by Simpson's rule
// (relative error at knots below 1e-9), linear between knots: absolute error below 1e-6. Φ⁻¹ is the exact inverse
// of that table, so that going there and back changes nothing but rounding.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "quantiles.hpp"

namespace orch::apps {

/// eˣ for |x| ≤ 700.
[[nodiscard]] double exp_exact(double x);

class Normal {
 public:
  Normal();

  /// Φ(z)
  [[nodiscard]] double cdf(double z) const {
    const double at = (std::clamp(z, -reach, reach) + reach) * steps;
    const auto i = std::min(static_cast<std::size_t>(at), cdf_.size() - 2);
    return std::min(1.0, cdf_[i] + (at - static_cast<double>(i)) * (cdf_[i + 1] - cdf_[i]));
  }
  /// Φ⁻¹(u) for u from [0, 1], from −8.5 to 8.5
  [[nodiscard]] double quantile(double u) const { return quantile_.at(u); }

  static constexpr double reach = 8.5;
  static constexpr int steps = 256;  ///< a unit

 private:
  std::vector<double> cdf_;
  Quantiles quantile_;
};

/// Made at first use.
[[nodiscard]] const Normal& normal();

}  // namespace orch::apps
