#include "quantile_fit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <queue>

#include "laws.hpp"

namespace orch::apps {

namespace {

/// A corner of the data's distribution function: probability up to a value.
struct Corner {
  double p;
  double value;
};

std::vector<Corner> corners_of(const std::vector<double>& sorted, bool whole) {
  const double half = whole ? 0.5 : 0;
  std::vector<Corner> corners;
  for (std::size_t begin = 0; begin < sorted.size();) {
    std::size_t end = begin;
    while (end < sorted.size() && sorted[end] == sorted[begin]) ++end;
    const auto n = static_cast<double>(sorted.size());
    corners.push_back({static_cast<double>(begin) / n, sorted[begin] - half});
    corners.push_back({static_cast<double>(end) / n, sorted[begin] + half});
    begin = end;
  }
  return corners;
}

/// A piece of the table from corner `begin` to `end`, and the corner between them that is furthest from it.
struct Piece {
  double error;
  std::size_t begin, end, worst;
  bool operator<(const Piece& other) const { return error < other.error; }
};

Piece piece_of(const std::vector<Corner>& corners, std::size_t begin, std::size_t end) {
  const Corner& a = corners[begin];
  const Corner& b = corners[end];
  Piece piece{-1, begin, end, begin};
  for (std::size_t i = begin + 1; i < end; ++i) {
    const double share = b.value > a.value ? (corners[i].value - a.value) / (b.value - a.value) : 0;
    const double error = b.value > a.value ? std::abs(a.p + share * (b.p - a.p) - corners[i].p) : 0;
    if (error > piece.error) piece = {error, begin, end, i};
  }
  return piece;
}

FittedLaw table_of(const std::vector<Corner>& corners, std::size_t knots) {
  std::vector<std::size_t> chosen{0, corners.size() - 1};
  std::priority_queue<Piece> pieces;
  pieces.push(piece_of(corners, 0, corners.size() - 1));
  constexpr double good_enough = 1e-6;
  while (chosen.size() < knots && pieces.top().error > good_enough) {
    const Piece piece = pieces.top();
    pieces.pop();
    chosen.push_back(piece.worst);
    pieces.push(piece_of(corners, piece.begin, piece.worst));
    pieces.push(piece_of(corners, piece.worst, piece.end));
  }
  std::sort(chosen.begin(), chosen.end());
  FittedLaw law;
  for (const std::size_t i : chosen) {
    law.first.push_back(std::round(corners[i].p * 1e6) * 1e-6);
    law.second.push_back(corners[i].value);
  }
  law.first.back() = 1;
  return law;
}

}  // namespace

Quantiles FittedLaw::quantiles() const { return discrete ? discrete_law(first, second) : Quantiles(first, second); }

std::string FittedLaw::toml() const {
  const auto list = [](const std::vector<double>& numbers, int digits) {
    std::string text;
    for (const double number : numbers) text += fmt::format("{}{:.{}g}", text.empty() ? "" : ", ", number, digits);
    return text;
  };
  if (discrete && first.size() == 1) return fmt::format("{{ constant = {} }}", list(first, 9));
  if (discrete) return fmt::format("{{ values = [{}], weights = [{}] }}", list(first, 9), list(second, 6));
  return fmt::format("{{ p = [{}], value = [{}] }}", list(first, 6), list(second, 9));
}

FittedLaw fit_law(std::vector<double> sorted, bool whole, const FitOptions& options) {
  const auto last = static_cast<double>(sorted.size() - 1);
  const double low = sorted[static_cast<std::size_t>(std::ceil(options.trim * last))];
  const double high = sorted[static_cast<std::size_t>(std::floor((1 - options.trim) * last))];
  for (double& value : sorted) value = std::clamp(value, low, high);
  const std::vector<Corner> corners = corners_of(sorted, whole);
  const std::size_t knots = std::clamp<std::size_t>(sorted.size() / options.values_a_knot, 2, options.knots);
  if (corners.size() > std::max<std::size_t>(2, knots)) return table_of(corners, knots);
  FittedLaw law;
  law.discrete = true;
  for (std::size_t i = 0; i < corners.size(); i += 2) {
    law.first.push_back((corners[i].value + corners[i + 1].value) / 2);
    law.second.push_back(corners[i + 1].p - corners[i].p);
  }
  return law;
}

}  // namespace orch::apps
