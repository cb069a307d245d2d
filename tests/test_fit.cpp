#include <algorithm>
#include <cmath>
#include <limits>

#include "orchmllm/base/random.hpp"
#include "orchmllm/cost/fit.hpp"
#include "property.hpp"

using namespace orch;

namespace {

CostFit truth_of(double gamma, double alpha, double beta, double conv = 0, double batch = 0) {
  CostFit truth;
  truth.gamma_seconds_per_unit.value = gamma;
  truth.alpha_seconds_per_token.value = alpha;
  truth.beta_seconds_per_token2.value = beta;
  truth.conv_seconds_per_padded_token.value = conv;
  truth.batch_seconds.value = batch;
  return truth;
}

double standard_normal(Random& random) {
  return std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
}

/// Batches of 1 … 40 units of 1 … 8,000 tokens, timed by `truth` with independent noise of `noise_seconds`.
std::vector<CostMeasurement> measure(const CostFit& truth, std::size_t batches, std::uint64_t seed,
                                     double noise_seconds = 0) {
  Random random(seed);
  std::vector<CostMeasurement> measurements(batches);
  for (CostMeasurement& measurement : measurements) {
    const std::uint64_t units = 1 + random.below(40);
    const std::uint64_t longest = 1 + random.below(8000);
    for (std::uint64_t i = 0; i < units; ++i) {
      measurement.unit_lengths.push_back(static_cast<std::uint32_t>(1 + random.below(longest)));
    }
    const double seconds = truth.seconds(measurement.unit_lengths);
    measurement.seconds = std::max(seconds / 2, seconds + noise_seconds * standard_normal(random));
  }
  return measurements;
}

std::string refusal(const std::vector<CostMeasurement>& measurements, const FitOptions& options = {}) {
  try {
    (void)fit_packed_cost(measurements, options);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

/// A relative tolerance for values that rounding alone separates.
bool close(double a, double b, double scale) { return std::abs(a - b) <= 1e-6 * scale; }

double any_coefficient(double unit) { return unit * (*rc::gen::element(0.0, 0.1, 1.0, 3.0, 10.0)); }

}  // namespace

TEST_CASE("exact times give back the coefficients, zeros included") {
  test::check_property("fit of exact times", [] {
    // Of comparable weight at these lengths, so that none drowns in the rounding of the others.
    const CostFit truth = truth_of(any_coefficient(1e-4), any_coefficient(1e-7), any_coefficient(1e-11));
    RC_PRE(truth.seconds(std::vector<std::uint32_t>{1}) > 0);
    const auto measurements = measure(truth, 40, *rc::gen::arbitrary<std::uint64_t>());
    const CostFit fit = fit_packed_cost(measurements);
    RC_ASSERT(close(fit.gamma_seconds_per_unit.value, truth.gamma_seconds_per_unit.value, 1e-4));
    RC_ASSERT(close(fit.alpha_seconds_per_token.value, truth.alpha_seconds_per_token.value, 1e-7));
    RC_ASSERT(close(fit.beta_seconds_per_token2.value, truth.beta_seconds_per_token2.value, 1e-11));
    RC_ASSERT(fit.r_squared > 1 - 1e-9);
    RC_ASSERT(fit.max_relative_residual < 1e-3);
    RC_ASSERT(fit.measurements == 40U);
  });
}

TEST_CASE("convolution and overhead of a batch are fitted where asked for") {
  test::check_property("fit of five coefficients", [] {
    const CostFit truth = truth_of(1e-4, 1e-7, 1e-11, any_coefficient(2e-8), any_coefficient(1e-3));
    const auto measurements = measure(truth, 60, *rc::gen::arbitrary<std::uint64_t>());
    const CostFit fit = fit_packed_cost(measurements, {.convolution = true, .batch_overhead = true});
    RC_ASSERT(close(fit.gamma_seconds_per_unit.value, 1e-4, 1e-4));
    RC_ASSERT(close(fit.alpha_seconds_per_token.value, 1e-7, 1e-7));
    RC_ASSERT(close(fit.conv_seconds_per_padded_token.value, truth.conv_seconds_per_padded_token.value, 2e-8));
    RC_ASSERT(close(fit.batch_seconds.value, truth.batch_seconds.value, 1e-3));
  });
}

TEST_CASE("with noise the truth lies within a few standard errors, and residuals have the size of the noise") {
  int outside_two = 0;
  int looked_at = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const CostFit truth = truth_of(2e-3, 2e-6, 5e-10);
    const double noise = 1e-3;
    const CostFit fit = fit_packed_cost(measure(truth, 200, seed, noise));
    CHECK(fit.rms_seconds > 0.7 * noise);
    CHECK(fit.rms_seconds < 1.3 * noise);
    CHECK(fit.r_squared > 0.99);
    for (const auto coefficient :
         {&CostFit::gamma_seconds_per_unit, &CostFit::alpha_seconds_per_token, &CostFit::beta_seconds_per_token2}) {
      const Coefficient& fitted = fit.*coefficient;
      const double errors = std::abs(fitted.value - (truth.*coefficient).value) / fitted.standard_error;
      CHECK(errors < 5);
      outside_two += errors > 2 ? 1 : 0;
      ++looked_at;
    }
  }
  // 4.6% of a normal distribution; correlated within a fit, so with a wide margin on both sides.
  CHECK(outside_two > looked_at / 200);
  CHECK(outside_two < looked_at / 8);
}

TEST_CASE("non-negative least squares meets the conditions of its optimum") {
  test::check_property("Karush-Kuhn-Tucker", [] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const auto columns = *rc::gen::inRange<Eigen::Index>(1, 6);
    const auto rows = columns + *rc::gen::inRange<Eigen::Index>(0, 10);
    Eigen::MatrixXd a(rows, columns);
    Eigen::VectorXd y(rows);
    for (Eigen::Index i = 0; i < rows; ++i) {
      y(i) = standard_normal(random);
      for (Eigen::Index j = 0; j < columns; ++j) a(i, j) = standard_normal(random);
    }
    const Eigen::VectorXd x = detail::non_negative_least_squares(a, y);
    const Eigen::VectorXd gradient = a.transpose() * (y - a * x);
    for (Eigen::Index j = 0; j < columns; ++j) {
      RC_ASSERT(x(j) >= 0);
      RC_ASSERT(gradient(j) < 1e-8);
      if (x(j) > 0) RC_ASSERT(std::abs(gradient(j)) < 1e-8);
    }
  });
}

TEST_CASE("data that cannot identify a coefficient is refused by name") {
  std::vector<CostMeasurement> equal_lengths;
  for (std::uint32_t units = 1; units <= 20; ++units) {
    equal_lengths.push_back({std::vector<std::uint32_t>(units, 512), 1e-3 * units});
  }
  const std::string all = refusal(equal_lengths);
  for (const auto* name : {"gamma", "alpha", "beta"}) CHECK(all.find(name) != std::string::npos);

  // Two lengths only, a batch of each unit alike: γ + α·l + β·l² has three unknowns for two values.
  std::vector<CostMeasurement> two_lengths = equal_lengths;
  for (std::uint32_t units = 1; units <= 20; ++units) {
    two_lengths.push_back({std::vector<std::uint32_t>(units, 2048), 4e-3 * units});
  }
  CHECK(refusal(two_lengths).find("beta") != std::string::npos);

  // A third length identifies all three.
  for (std::uint32_t units = 1; units <= 20; ++units) {
    two_lengths.push_back({std::vector<std::uint32_t>(units, 8192), 20e-3 * units});
  }
  CHECK(refusal(two_lengths).empty());

  // The same number of units in every batch: γ and the overhead of a batch are one.
  std::vector<CostMeasurement> same_count;
  Random random(3);
  for (int i = 0; i < 30; ++i) {
    CostMeasurement measurement;
    for (int unit = 0; unit < 8; ++unit) {
      measurement.unit_lengths.push_back(static_cast<std::uint32_t>(1 + random.below(4000)));
    }
    measurement.seconds = truth_of(1e-4, 1e-7, 1e-11).seconds(measurement.unit_lengths);
    same_count.push_back(measurement);
  }
  CHECK(refusal(same_count).empty());
  const std::string overhead = refusal(same_count, {.batch_overhead = true});
  CHECK(overhead.find("gamma") != std::string::npos);
  CHECK(overhead.find("overhead") != std::string::npos);
  CHECK(overhead.find("beta") == std::string::npos);

  CHECK(refusal({{{1, 2}, 1.0}, {{5}, 2.0}}).find("2 measurements") != std::string::npos);
  CHECK(refusal({{{0}, 1.0}, {{0, 0}, 2.0}, {{0}, 1.0}}).find("alpha") != std::string::npos);
  auto broken = same_count;
  broken[4].seconds = std::numeric_limits<double>::quiet_NaN();
  CHECK(refusal(broken).find("measurement 4") != std::string::npos);
  broken[4].seconds = 0;
  CHECK(refusal(broken).find("measurement 4") != std::string::npos);
}

TEST_CASE("the integer model is within the error promised, for any batch") {
  test::check_property("integer cost against the fit", [] {
    const auto magnitude = [](int exponent) { return std::pow(10.0, *rc::gen::inRange(exponent - 4, exponent + 3)); };
    CostFit fit =
        truth_of(*rc::gen::arbitrary<bool>() ? magnitude(-4) : 0, *rc::gen::arbitrary<bool>() ? magnitude(-7) : 0,
                 *rc::gen::arbitrary<bool>() ? magnitude(-11) : 0, *rc::gen::arbitrary<bool>() ? magnitude(-8) : 0);
    RC_PRE(fit.seconds(std::vector<std::uint32_t>{1}) > 0);
    const IntegerCostOptions options{.longest_length = *rc::gen::element<std::uint64_t>(10, 4096, 131072),
                                     .max_relative_error = *rc::gen::element(0.1, 0.01, 0.001)};
    const IntegerCost model = integer_cost(fit, options);
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    for (int batch = 0; batch < 5; ++batch) {
      std::vector<std::uint32_t> lengths;
      for (std::uint64_t units = 1 + random.below(6); units > 0; --units) {
        // As many short units as long ones.
        lengths.push_back(
            static_cast<std::uint32_t>(1 + random.below(random.below(2) == 0 ? 4 : options.longest_length)));
      }
      const double seconds = fit.seconds(lengths);
      const double integer = static_cast<double>(model.cost(model.cost.batch(lengths))) * model.seconds_per_cost_unit;
      RC_ASSERT(std::abs(integer - seconds) <= (options.max_relative_error + 1e-12) * seconds);
    }
  });
}

TEST_CASE("integer models that make no sense are refused") {
  CHECK_THROWS_AS((void)integer_cost(truth_of(0, 0, 0)), InvalidInput);
  CHECK_THROWS_AS((void)integer_cost(truth_of(0, 1, 0), {.longest_length = 0}), InvalidInput);
  CHECK_THROWS_AS((void)integer_cost(truth_of(0, 1, 0), {.max_relative_error = 0}), InvalidInput);
  CHECK_THROWS_AS(
      (void)integer_cost(truth_of(1e12, 0, 1e-8), {.longest_length = 4'000'000'000, .max_relative_error = 1e-6}),
      Overflow);
  // A coefficient that never matters does not spoil the scale.
  const IntegerCost model = integer_cost(truth_of(1e-300, 1e-7, 0));
  CHECK(model.cost.packed.gamma == 0);
  CHECK(model.cost.packed.alpha == 1000);
}
