#include "laws.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <numeric>

#include "normal.hpp"

namespace orch::apps {

Quantiles constant_law(double value) { return {{0, 1}, {value, value}}; }

Quantiles uniform_law(double low, double high) { return {{0, 1}, {low, high}}; }

Quantiles discrete_law(const std::vector<double>& values, const std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> probability;
  std::vector<double> value;
  double until = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    probability.push_back(until);
    until = i + 1 == values.size() ? 1 : std::min(1.0, until + weights[i] / total);
    probability.push_back(until);
    value.insert(value.end(), {values[i], values[i]});
  }
  return {std::move(probability), std::move(value)};
}

Quantiles lognormal_law(double median, double sigma) {
  constexpr int steps = 32;  // a unit of z
  constexpr int reach = 8;
  std::vector<double> probability;
  std::vector<double> value;
  for (int i = -reach * steps; i <= reach * steps; ++i) {
    const double z = static_cast<double>(i) / steps;
    probability.push_back(normal().cdf(z));
    value.push_back(median * exp_exact(sigma * z));
  }
  probability.front() = 0;
  probability.back() = 1;
  return {std::move(probability), std::move(value)};
}

Quantiles pareto_law(double from, double alpha, double max) {
  constexpr double step = 1.0 / 64;  // of the value's logarithm
  std::vector<double> probability{0};
  std::vector<double> value{from};
  for (int i = 1; value.back() < max; ++i) {
    value.push_back(from * exp_exact(step * i));
    probability.push_back(1 - exp_exact(-alpha * step * i));
  }
  probability.push_back(1);
  value.push_back(value.back());
  return clamped({std::move(probability), std::move(value)}, from, max);
}

namespace {

using sim::TomlSection;

constexpr std::size_t most_knots = 65536;
constexpr double biggest = 1e12;

Quantiles read_body(TomlSection& section);

Quantiles read_table(TomlSection& section) {
  std::vector<double> p = section.numbers("p");
  std::vector<double> value = section.numbers("value");
  if (p.size() < 2 || p.size() > most_knots) section.fail("p", fmt::format("must have 2 to {} entries", most_knots));
  if (p.front() != 0 || p.back() != 1) section.fail("p", "must go from 0 to 1");
  if (p.size() != value.size()) section.fail("value", "must have as many entries as p");
  if (!std::is_sorted(p.begin(), p.end())) section.fail("p", "must not descend");
  if (!std::is_sorted(value.begin(), value.end())) section.fail("value", "must not descend");
  return {std::move(p), std::move(value)};
}

Quantiles read_discrete(TomlSection& section) {
  const std::vector<double> values = section.numbers("values");
  const std::vector<double> weights = section.numbers("weights");
  if (values.size() > most_knots) section.fail("values", fmt::format("must have at most {} entries", most_knots));
  if (values.size() != weights.size()) section.fail("weights", "must have as many entries as values");
  if (std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) != values.end()) {
    section.fail("values", "must ascend");
  }
  for (const double weight : weights) {
    if (weight < 0) section.fail("weights", "must not be negative");
  }
  if (!(std::accumulate(weights.begin(), weights.end(), 0.0) > 0)) section.fail("weights", "must not all be 0");
  return discrete_law(values, weights);
}

Quantiles read_uniform(TomlSection& section) {
  const std::vector<double> range = section.numbers("uniform");
  if (range.size() != 2 || range[0] > range[1]) section.fail("uniform", "must be [low, high]");
  return uniform_law(range[0], range[1]);
}

Quantiles read_lognormal(TomlSection& section) {
  TomlSection law = section.section("lognormal");
  const double median = law.number("median", 1e-9, biggest);
  const double sigma = law.number("sigma", 0, 10);
  law.done();
  return lognormal_law(median, sigma);
}

Quantiles read_pareto(TomlSection& section) {
  TomlSection law = section.section("pareto");
  const double from = law.number("from", 1e-9, biggest);
  const double alpha = law.number("alpha", 1e-3, 100);
  law.done();
  return pareto_law(from, alpha, section.number("max", from, biggest));
}

Quantiles read_mixture(TomlSection& section) {
  std::vector<Quantiles> parts;
  std::vector<double> weights;
  for (TomlSection& part : section.sections("mixture")) {
    weights.push_back(part.number("weight", 0, 1e9));
    parts.push_back(read_body(part));
    part.done();
  }
  if (parts.empty() || parts.size() > 64) section.fail("mixture", "must have 1 to 64 parts");
  if (!(std::accumulate(weights.begin(), weights.end(), 0.0) > 0)) section.fail("mixture", "needs a weight above 0");
  return mixture(parts, weights);
}

Quantiles read_kind(TomlSection& section) {
  constexpr std::array<const char*, 7> kinds{"p", "values", "constant", "uniform", "lognormal", "pareto", "mixture"};
  const auto given = std::count_if(kinds.begin(), kinds.end(), [&](const char* kind) { return section.has(kind); });
  if (given != 1) {
    section.fail(
        "law", fmt::format("has {} of p, values, constant, uniform, lognormal, pareto, mixture; expected one", given));
  }
  if (section.has("p")) return read_table(section);
  if (section.has("values")) return read_discrete(section);
  if (section.has("constant")) return constant_law(section.number("constant", 0, biggest));
  if (section.has("uniform")) return read_uniform(section);
  if (section.has("lognormal")) return read_lognormal(section);
  if (section.has("pareto")) return read_pareto(section);
  return read_mixture(section);
}

Quantiles read_body(TomlSection& section) {
  const Quantiles law = read_kind(section);
  const double low = section.number("min", 0, biggest, 0.0);
  const double high = section.number("max", 0, biggest, biggest);
  if (low > high) section.fail("min", "must be at most max");
  return section.has("min") || section.has("max") ? clamped(law, low, high) : law;
}

}  // namespace

Quantiles read_law(TomlSection& parent, const char* key, double low, double high) {
  TomlSection section = parent.section(key);
  const Quantiles law = read_body(section);
  section.done();
  if (law.values().front() < low || law.values().back() > high) {
    parent.fail(key, fmt::format("has values from {} to {}, must lie from {} to {}", law.values().front(),
                                 law.values().back(), low, high));
  }
  return law;
}

}  // namespace orch::apps
