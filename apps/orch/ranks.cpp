#include "ranks.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "normal.hpp"

namespace orch::apps {

double ks_distance(std::span<const double> a, std::span<const double> b) {
  if (a.empty() || b.empty()) return 1;
  double most = 0;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    const double value = std::min(a[i], b[j]);
    while (i < a.size() && a[i] == value) ++i;
    while (j < b.size() && b[j] == value) ++j;
    const double share_a = static_cast<double>(i) / static_cast<double>(a.size());
    const double share_b = static_cast<double>(j) / static_cast<double>(b.size());
    most = std::max(most, std::abs(share_a - share_b));
  }
  return most;
}

double ks_noise(std::size_t a, std::size_t b) {
  if (a == 0 || b == 0) return 1;
  return std::min(1.0, 1.358 * std::sqrt(1.0 / static_cast<double>(a) + 1.0 / static_cast<double>(b)));
}

Pairs common(std::span<const float> a, std::span<const float> b) {
  Pairs pairs;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!std::isnan(a[i]) && !std::isnan(b[i])) pairs.emplace_back(a[i], b[i]);
  }
  return pairs;
}

namespace {

/// Rank of every value, from 0 to 1, minus 1/2; equal values have their mean rank.
std::vector<double> centred_ranks(const std::vector<float>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return values[x] < values[y]; });
  std::vector<double> rank(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double mean = static_cast<double>(begin + end) / (2 * static_cast<double>(order.size())) - 0.5;
    for (; begin < end; ++begin) rank[order[begin]] = mean;
  }
  return rank;
}

std::pair<std::vector<double>, std::vector<double>> both_ranks(const Pairs& pairs) {
  std::vector<float> a;
  std::vector<float> b;
  for (const auto& [x, y] : pairs) {
    a.push_back(x);
    b.push_back(y);
  }
  return {centred_ranks(a), centred_ranks(b)};
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const double ab = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  const double aa = std::inner_product(a.begin(), a.end(), a.begin(), 0.0);
  const double bb = std::inner_product(b.begin(), b.end(), b.begin(), 0.0);
  return aa > 1e-12 && bb > 1e-12 ? ab / std::sqrt(aa * bb) : 0;
}

constexpr std::size_t grid = 96;

/// Mean ranks as a function of the probability, in the middle of `grid` equal parts.
std::vector<double> rank_table(std::vector<double> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::vector<double> table;
  for (std::size_t i = 0; i < grid; ++i) table.push_back(ranks[(2 * i + 1) * ranks.size() / (2 * grid)]);
  return table;
}

/// Rank correlation of two tables at normals with correlation r.
double rank_correlation_at(double r, const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> x;
  std::vector<double> y;
  const double rest = std::sqrt(1 - r * r);
  const auto middle = [](std::size_t i) { return normal().quantile((static_cast<double>(i) + 0.5) / grid); };
  for (std::size_t i = 0; i < grid; ++i) {
    for (std::size_t j = 0; j < grid; ++j) {
      const double u = normal().cdf(r * middle(i) + rest * middle(j));
      x.push_back(a[i]);
      y.push_back(b[std::min(grid - 1, static_cast<std::size_t>(u * grid))]);
    }
  }
  return correlation(x, y);
}

}  // namespace

double rank_correlation(const Pairs& pairs) {
  const auto [a, b] = both_ranks(pairs);
  return correlation(a, b);
}

double copula_correlation(const Pairs& pairs) {
  if (pairs.empty()) return 0;
  const auto [a, b] = both_ranks(pairs);
  const double wanted = correlation(a, b);
  const std::vector<double> table_a = rank_table(a);
  const std::vector<double> table_b = rank_table(b);
  double low = -0.995;
  double high = 0.995;
  for (int halving = 0; halving < 12; ++halving) {
    const double middle = (low + high) / 2;
    (rank_correlation_at(middle, table_a, table_b) < wanted ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace orch::apps
