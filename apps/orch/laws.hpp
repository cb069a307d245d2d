// Laws of a profile (docs/traces.md): a quantile table, or a parametric law, which becomes a quantile table here.
//
//   { p = [0, 0.5, 1], value = [1, 18, 112] }                 linear between knots
//   { values = [1, 2, 4], weights = [8, 1, 1] }               these values only
//   { constant = 3 }    { uniform = [1, 9] }
//   { lognormal = { median = 90, sigma = 0.8 }, min = 1, max = 8192 }    sigma of the natural logarithm
//   { pareto = { from = 8, alpha = 1.5 }, max = 4096 }        P(above x) = (from / x)^alpha
//   { mixture = [{ weight = 9, constant = 1 }, { weight = 1, uniform = [2, 16] }] }
//
// min and max move what lies outside to the bound. Tables of log-normal and Pareto laws are within 0.02 % of the law's
// values (0.1 % for sigma = 2) except in the outermost 1e-12 of probability.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "quantiles.hpp"
#include "toml_reader.hpp"

namespace orch::apps {

[[nodiscard]] Quantiles constant_law(double value);
[[nodiscard]] Quantiles uniform_law(double low, double high);
[[nodiscard]] Quantiles discrete_law(const std::vector<double>& values, const std::vector<double>& weights);
[[nodiscard]] Quantiles lognormal_law(double median, double sigma);
/// Cut at `max`: the probability beyond it lies on it.
[[nodiscard]] Quantiles pareto_law(double from, double alpha, double max);

/// Reads the law at `key`. Throws InvalidInput as FILE:LINE, also for values outside low … high.
[[nodiscard]] Quantiles read_law(sim::TomlSection& parent, const char* key, double low, double high);

}  // namespace orch::apps
