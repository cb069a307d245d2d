// Comparisons of samples by rank: the Kolmogorov–Smirnov distance, Spearman's correlation, and the Gaussian copula that
// has a given rank correlation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <utility>
#include <vector>

namespace orch::apps {

/// Largest distance between the distribution functions of two sorted samples, 1 if one is empty. Complexity: O(n + m).
[[nodiscard]] double ks_distance(std::span<const double> a, std::span<const double> b);

/// What chance alone stays below in 95 of 100 pairs of samples of one distribution.
[[nodiscard]] double ks_noise(std::size_t a, std::size_t b);

/// Values of the same samples, those without NaN.
using Pairs = std::vector<std::pair<float, float>>;
[[nodiscard]] Pairs common(std::span<const float> a, std::span<const float> b);

/// Spearman's rank correlation, equal values sharing their mean rank; 0 if one side is constant. O(n log n).
[[nodiscard]] double rank_correlation(const Pairs& pairs);

/// The correlation of a bivariate normal distribution whose values, put to the marginals of `pairs`, have the rank
/// correlation of `pairs`. Ties lower rank correlations; this undoes it. Accuracy 0.01. O(n log n).
[[nodiscard]] double copula_correlation(const Pairs& pairs);

}  // namespace orch::apps
