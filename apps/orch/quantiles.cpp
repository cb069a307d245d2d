#include "quantiles.hpp"

#include <utility>

namespace orch::apps {

Quantiles::Quantiles(std::vector<double> probability, std::vector<double> value)
    : probability_(std::move(probability)), value_(std::move(value)), slope_(value_.size(), 0.0) {
  for (std::size_t i = 1; i < value_.size(); ++i) {
    const double width = probability_[i] - probability_[i - 1];
    if (width > 0) slope_[i] = (value_[i] - value_[i - 1]) / width;
  }
  for (std::size_t part = 0; part < guide_.size(); ++part) {
    const double p = static_cast<double>(part) / parts;
    guide_[part] = static_cast<std::uint32_t>(std::upper_bound(probability_.begin(), probability_.end(), p) -
                                              probability_.begin());
  }
}

namespace {

/// Probability on the piece that ends at knot `right`, for a value strictly inside it.
double inside(const Quantiles& q, std::size_t right, double value) {
  const double share = (value - q.values()[right - 1]) / (q.values()[right] - q.values()[right - 1]);
  return q.probabilities()[right - 1] + share * (q.probabilities()[right] - q.probabilities()[right - 1]);
}

}  // namespace

double Quantiles::below(double value) const {
  const auto i = static_cast<std::size_t>(std::lower_bound(value_.begin(), value_.end(), value) - value_.begin());
  if (i == value_.size()) return 1;
  if (i == 0) return 0;
  return value_[i] == value ? probability_[i] : inside(*this, i, value);
}

double Quantiles::up_to(double value) const {
  const auto i = static_cast<std::size_t>(std::upper_bound(value_.begin(), value_.end(), value) - value_.begin());
  if (i == value_.size()) return 1;
  if (i == 0) return 0;
  return value_[i - 1] == value ? probability_[i - 1] : inside(*this, i, value);
}

Quantiles mixture(std::span<const Quantiles> parts, std::span<const double> weights) {
  double total = 0;
  for (const double weight : weights) total += weight;
  std::vector<double> at;
  for (const Quantiles& part : parts) at.insert(at.end(), part.values().begin(), part.values().end());
  std::sort(at.begin(), at.end());
  at.erase(std::unique(at.begin(), at.end()), at.end());

  std::vector<double> probability;
  std::vector<double> value;
  for (const double v : at) {
    double below = 0;
    double up_to = 0;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      below += weights[k] / total * parts[k].below(v);
      up_to += weights[k] / total * parts[k].up_to(v);
    }
    for (const double p : {below, up_to}) {
      const double last = probability.empty() ? 0 : probability.back();
      probability.push_back(std::clamp(p, last, 1.0));
      value.push_back(v);
    }
  }
  probability.front() = 0;
  probability.back() = 1;
  return {std::move(probability), std::move(value)};
}

Quantiles clamped(const Quantiles& quantiles, double low, double high) {
  const std::span<const double> p = quantiles.probabilities();
  const std::span<const double> v = quantiles.values();
  std::vector<double> probability;
  std::vector<double> value;
  const auto add = [&](double at, double what) {
    probability.push_back(at);
    value.push_back(std::clamp(what, low, high));
  };
  for (std::size_t i = 0; i < v.size(); ++i) {
    // A piece that crosses a bound bends there.
    for (const double bound : {low, high}) {
      if (i > 0 && v[i - 1] < bound && bound < v[i]) add(quantiles.below(bound), bound);
    }
    add(p[i], v[i]);
  }
  return {std::move(probability), std::move(value)};
}

}  // namespace orch::apps
