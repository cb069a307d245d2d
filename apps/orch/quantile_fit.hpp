// A law for measured values: few values with their weights, or a quantile table with a given number of knots.
//
// Knots are placed one by one where the table's distribution function is furthest from the data's, so that atoms and
// gaps get knots and smooth parts need few. Complexity: O(n log n + knots · distinct values).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "quantiles.hpp"

namespace orch::apps {

struct FitOptions {
  std::size_t knots = 33;
  double trim = 0;                 ///< probability at each end whose values become the quantile there
  std::size_t values_a_knot = 10;  ///< at least; fewer knots where there are fewer values
};

struct FittedLaw {
  bool discrete = false;
  std::vector<double> first;   ///< p, or the values
  std::vector<double> second;  ///< value, or the weights
  [[nodiscard]] Quantiles quantiles() const;
  /// As a profile writes it.
  [[nodiscard]] std::string toml() const;
};

/// `sorted`: at least one value. `whole`: whole numbers; a table goes from half below the smallest to half above the
/// largest, since draws are rounded.
[[nodiscard]] FittedLaw fit_law(std::vector<double> sorted, bool whole, const FitOptions& options);

}  // namespace orch::apps
