// Fit of the cost coefficients γ, α, β to measured batches: seconds ≈ γ · units + α · Σ l + β · Σ l², optionally
// + α_c · units · longest (padded convolution) + a constant per batch (launches, synchronisation). All coefficients ≥
// 0.
//
// Units: lengths in tokens, coefficients in seconds per unit, per token, per token², per padded token, per batch.
// Method: non-negative least squares (Lawson, Hanson 1974, active set) on columns scaled to unit length. A coefficient
// is refused (`InvalidInput` that names it) where the sine of the angle between its column and the span of the others
// is below `min_independence`: then other coefficients explain the same data about as well, e.g. where all lengths are
// equal. Complexity: O(measurements · units) plus a few small decompositions.
// Guarantee: global optimum of the constrained least squares, up to floating point. A fit feeds *one* plan's costs:
// send the integer model to all ranks, do not fit on each of them.
//
//   const orch::CostFit fit = orch::fit_packed_cost(measurements);
//   const orch::IntegerCost model = orch::integer_cost(fit, {.longest_length = 131072});
//   model.cost.packed(length);  // model.seconds_per_cost_unit · this ≈ seconds
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <Eigen/QR>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orchmllm/base/error.hpp"
#include "orchmllm/cost/conv_packed.hpp"
#include "orchmllm/cost/packed.hpp"

namespace orch {

struct CostMeasurement {
  std::vector<std::uint32_t> unit_lengths;  ///< tokens, of every unit in the batch
  double seconds = 0;
};

struct FitOptions {
  bool convolution = false;        ///< fit α_c, seconds per padded token
  bool batch_overhead = false;     ///< fit a constant per batch; it does not depend on who gets which sample
  double min_independence = 1e-3;  ///< sine of the angle between a column and the span of the others
};

struct Coefficient {
  double value = 0;
  double standard_error = 0;  ///< 0 where held at zero; infinite where there are no measurements to spare
  bool at_zero = false;       ///< held there by the constraint
};

struct CostFit {
  Coefficient gamma_seconds_per_unit;
  Coefficient alpha_seconds_per_token;
  Coefficient beta_seconds_per_token2;
  Coefficient conv_seconds_per_padded_token;  ///< 0 unless asked for
  Coefficient batch_seconds;                  ///< 0 unless asked for

  std::size_t measurements = 0;
  double r_squared = 0;              ///< share of the variance of the seconds that the fit explains
  double rms_seconds = 0;            ///< root of the mean squared residual
  double max_relative_residual = 0;  ///< largest |residual| / measured seconds
  double smallest_independence = 1;  ///< of all columns; the smaller, the larger the standard errors

  /// Predicted seconds of a batch.
  [[nodiscard]] double seconds(std::span<const std::uint32_t> unit_lengths) const {
    double linear = 0;
    double squares = 0;
    double longest = 0;
    for (const std::uint32_t length : unit_lengths) {
      const double l = length;
      linear += l;
      squares += l * l;
      longest = std::max(longest, l);
    }
    const auto units = static_cast<double>(unit_lengths.size());
    return gamma_seconds_per_unit.value * units + alpha_seconds_per_token.value * linear +
           beta_seconds_per_token2.value * squares + conv_seconds_per_padded_token.value * units * longest +
           batch_seconds.value;
  }
};

namespace detail {

struct FitColumn {
  std::string_view name;
  Coefficient CostFit::*coefficient;
};

/// Non-negative least squares: minimises |A·x − y| over x ≥ 0. Lawson and Hanson's active set: a coefficient enters
/// where its gradient is positive, and the step towards the unconstrained optimum stops where one would turn negative.
[[nodiscard]] inline Eigen::VectorXd non_negative_least_squares(const Eigen::MatrixXd& a, const Eigen::VectorXd& y) {
  const Eigen::Index columns = a.cols();
  Eigen::VectorXd x = Eigen::VectorXd::Zero(columns);
  std::vector<bool> free(static_cast<std::size_t>(columns), false);
  const auto is_free = [&](Eigen::Index j) { return free[static_cast<std::size_t>(j)]; };
  const auto solve = [&] {
    std::vector<Eigen::Index> used;
    for (Eigen::Index j = 0; j < columns; ++j) {
      if (is_free(j)) used.push_back(j);
    }
    Eigen::VectorXd z = Eigen::VectorXd::Zero(columns);
    if (used.empty()) return z;
    Eigen::MatrixXd part(a.rows(), static_cast<Eigen::Index>(used.size()));
    for (std::size_t j = 0; j < used.size(); ++j) part.col(static_cast<Eigen::Index>(j)) = a.col(used[j]);
    const Eigen::VectorXd solution = part.colPivHouseholderQr().solve(y);
    for (std::size_t j = 0; j < used.size(); ++j) z(used[j]) = solution(static_cast<Eigen::Index>(j));
    return z;
  };

  const double tolerance = 1e-12 * y.norm();
  // Each round lowers the residual and ends with another set of free columns, of which there are 2^columns.
  for (int round = 0; round < (1 << columns); ++round) {
    const Eigen::VectorXd gradient = a.transpose() * (y - a * x);
    Eigen::Index enters = -1;
    for (Eigen::Index j = 0; j < columns; ++j) {
      if (!is_free(j) && gradient(j) > tolerance && (enters < 0 || gradient(j) > gradient(enters))) enters = j;
    }
    if (enters < 0) break;
    free[static_cast<std::size_t>(enters)] = true;
    Eigen::VectorXd z = solve();
    if (z(enters) <= 0) {  // rounding only: the gradient said otherwise
      free[static_cast<std::size_t>(enters)] = false;
      break;
    }
    for (;;) {
      double step = 1;
      Eigen::Index leaves = -1;
      for (Eigen::Index j = 0; j < columns; ++j) {
        if (!is_free(j) || z(j) > 0) continue;
        const double until_zero = x(j) / (x(j) - z(j));
        if (leaves >= 0 && until_zero >= step) continue;
        step = until_zero;
        leaves = j;
      }
      if (leaves < 0) break;
      x += step * (z - x);
      for (Eigen::Index j = 0; j < columns; ++j) {
        if (j != leaves && !(is_free(j) && x(j) <= 0)) continue;
        free[static_cast<std::size_t>(j)] = false;
        x(j) = 0;
      }
      z = solve();
    }
    x = z;
  }
  return x;
}

/// Length of the part of unit column `j` that the other columns cannot explain.
[[nodiscard]] inline double independence(const Eigen::MatrixXd& unit_columns, Eigen::Index j) {
  const Eigen::Index others = unit_columns.cols() - 1;
  if (others == 0) return 1;
  Eigen::MatrixXd rest(unit_columns.rows(), others);
  for (Eigen::Index from = 0, to = 0; from <= others; ++from) {
    if (from != j) rest.col(to++) = unit_columns.col(from);
  }
  const Eigen::VectorXd explained = rest * rest.colPivHouseholderQr().solve(unit_columns.col(j));
  return (unit_columns.col(j) - explained).norm();
}

[[nodiscard]] inline std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

}  // namespace detail

/// Throws InvalidInput where the measurements cannot identify a coefficient, or are no measurements.
[[nodiscard]] inline CostFit fit_packed_cost(std::span<const CostMeasurement> measurements,
                                             const FitOptions& options = {}) {
  std::vector<detail::FitColumn> columns{{"gamma (seconds per unit)", &CostFit::gamma_seconds_per_unit},
                                         {"alpha (seconds per token)", &CostFit::alpha_seconds_per_token},
                                         {"beta (seconds per token^2)", &CostFit::beta_seconds_per_token2}};
  if (options.convolution) {
    columns.push_back({"conv_alpha (seconds per padded token)", &CostFit::conv_seconds_per_padded_token});
  }
  if (options.batch_overhead) columns.push_back({"overhead (seconds per batch)", &CostFit::batch_seconds});

  std::vector<std::string> names;
  for (const detail::FitColumn& column : columns) names.emplace_back(column.name);
  if (measurements.size() < columns.size()) {
    throw InvalidInput(std::to_string(measurements.size()) + " measurements cannot identify " +
                       std::to_string(columns.size()) + " coefficients: " + detail::joined(names));
  }
  const auto rows = static_cast<Eigen::Index>(measurements.size());
  const auto width = static_cast<Eigen::Index>(columns.size());
  Eigen::MatrixXd a(rows, width);
  Eigen::VectorXd y(rows);
  for (Eigen::Index i = 0; i < rows; ++i) {
    const CostMeasurement& measurement = measurements[static_cast<std::size_t>(i)];
    if (!std::isfinite(measurement.seconds) || measurement.seconds <= 0) {
      throw InvalidInput("measurement " + std::to_string(i) + " took " + std::to_string(measurement.seconds) +
                         " seconds: a positive, finite time is needed");
    }
    y(i) = measurement.seconds;
    for (Eigen::Index j = 0; j < width; ++j) {
      CostFit unit;  // one coefficient 1, all others 0: its prediction is the column's entry
      (unit.*columns[static_cast<std::size_t>(j)].coefficient).value = 1;
      a(i, j) = unit.seconds(measurement.unit_lengths);
    }
  }

  CostFit fit;
  fit.measurements = measurements.size();
  Eigen::VectorXd scale(width);
  std::vector<std::string> refused;
  for (Eigen::Index j = 0; j < width; ++j) {
    scale(j) = a.col(j).norm();
    if (scale(j) > 0) a.col(j) /= scale(j);
    if (scale(j) == 0) refused.push_back(names[static_cast<std::size_t>(j)]);
  }
  if (!refused.empty()) {
    throw InvalidInput("the measurements cannot identify " + detail::joined(refused) +
                       ": every batch is empty or has only zero lengths");
  }
  for (Eigen::Index j = 0; j < width; ++j) {
    const double independence = detail::independence(a, j);
    fit.smallest_independence = std::min(fit.smallest_independence, independence);
    if (independence < options.min_independence) refused.push_back(names[static_cast<std::size_t>(j)]);
  }
  if (!refused.empty()) {
    throw InvalidInput("the measurements cannot identify " + detail::joined(refused) +
                       ": the other coefficients explain the same differences; measure batches that differ more in "
                       "their numbers and lengths of units");
  }

  const Eigen::VectorXd x = detail::non_negative_least_squares(a, y);
  std::vector<Eigen::Index> free;
  for (Eigen::Index j = 0; j < width; ++j) {
    if (x(j) > 0) free.push_back(j);
  }
  const Eigen::VectorXd residual = y - a * x;
  const auto degrees = rows - static_cast<Eigen::Index>(free.size());
  const double variance =
      degrees > 0 ? residual.squaredNorm() / static_cast<double>(degrees) : std::numeric_limits<double>::infinity();
  Eigen::MatrixXd used(rows, static_cast<Eigen::Index>(free.size()));
  for (std::size_t j = 0; j < free.size(); ++j) used.col(static_cast<Eigen::Index>(j)) = a.col(free[j]);
  // The variance of one coefficient is the noise over the squared part of its column that no other explains.
  for (Eigen::Index j = 0; j < width; ++j) (fit.*columns[static_cast<std::size_t>(j)].coefficient).at_zero = true;
  for (std::size_t j = 0; j < free.size(); ++j) {
    const Eigen::Index column = free[j];
    const double own = detail::independence(used, static_cast<Eigen::Index>(j));
    fit.*columns[static_cast<std::size_t>(column)].coefficient = {x(column) / scale(column),
                                                                  std::sqrt(variance) / (own * scale(column)), false};
  }
  const double spread = (y.array() - y.mean()).matrix().squaredNorm();
  fit.r_squared = spread > 0 ? 1 - residual.squaredNorm() / spread : 1;
  fit.rms_seconds = residual.norm() / std::sqrt(static_cast<double>(rows));
  fit.max_relative_residual = (residual.array().abs() / y.array()).maxCoeff();
  return fit;
}

struct IntegerCostOptions {
  std::uint64_t longest_length = 131072;  ///< tokens; the bound holds for units up to it
  double max_relative_error = 1e-3;       ///< of the cost of any batch, against the fit without its batch overhead
};

struct IntegerCost {
  ConvPackedCost cost;               ///< `cost.packed` alone where no convolution was fitted
  double seconds_per_cost_unit = 0;  ///< cost · this ≈ seconds, without the overhead per batch
};

/// The fit as an integer cost model. All coefficients are multiplied by one scale and rounded. Half of the error
/// allowed goes to rounding: the scale makes every coefficient kept at least 1 / max_relative_error, so that rounding
/// changes it by at most half of that. The other half goes to coefficients that never matter: one whose part of the
/// cost of any unit of 1 … longest_length tokens is below a sixth of the error allowed becomes 0. Throws InvalidInput
/// where the fit is zero everywhere, Overflow where coefficients are too far apart for 64 bits.
[[nodiscard]] inline IntegerCost integer_cost(const CostFit& fit, const IntegerCostOptions& options = {}) {
  if (options.longest_length == 0) throw InvalidInput("longest_length = 0: at least one token is needed");
  if (!(options.max_relative_error > 0) || options.max_relative_error > 1) {
    throw InvalidInput("max_relative_error must be above 0 and at most 1");
  }
  const double gamma = fit.gamma_seconds_per_unit.value;
  const double alpha = fit.alpha_seconds_per_token.value;
  const double beta = fit.beta_seconds_per_token2.value;
  const double conv = fit.conv_seconds_per_padded_token.value;
  const auto longest = static_cast<double>(options.longest_length);
  const auto unit_seconds = [&](double l) { return gamma + alpha * l + beta * l * l; };
  // Where the linear part weighs most: γ and β·l² are equal there, or at an end of the range.
  const double middle = beta > 0 ? std::clamp(std::sqrt(gamma / beta), 1.0, longest) : longest;
  const double least = unit_seconds(1);
  const std::array<double, 4> values{gamma, alpha, beta, conv};
  const std::array<double, 4> weight{least > 0 ? gamma / least : 0,
                                     alpha > 0 ? alpha * middle / unit_seconds(middle) : 0,
                                     beta > 0 ? beta * longest * longest / unit_seconds(longest) : 0,
                                     conv > 0 ? conv * longest / (least > 0 ? least : conv) : 0};
  std::array<bool, 4> kept{};
  double smallest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    kept[i] = values[i] > 0 && weight[i] > options.max_relative_error / 6;
    if (kept[i] && (smallest == 0 || values[i] < smallest)) smallest = values[i];
  }
  if (smallest == 0) throw InvalidInput("the fit is zero for every length: there is no cost to balance");

  const double scale = 1 / (options.max_relative_error * smallest);
  std::array<Cost, 4> integer{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!kept[i]) continue;
    const double scaled = std::round(values[i] * scale);
    if (!(scaled < 0x1p63)) {
      throw Overflow("cost overflow: the largest coefficient is " + std::to_string(values[i] / smallest) +
                     " times the smallest one; allow a larger max_relative_error than " +
                     std::to_string(options.max_relative_error));
    }
    integer[i] = static_cast<Cost>(scaled);
  }
  return {{integer[3], {integer[0], integer[1], integer[2], 0}}, 1 / scale};
}

}  // namespace orch
