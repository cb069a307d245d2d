#include "normal.hpp"

#include <cmath>

namespace orch::apps {

double exp_exact(double x) {
  // x = k · ln 2 + r with |r| ≤ ln 2 / 2; ln 2 in two parts, the first with 21 zero bits at its end.
  constexpr double ln2_high = 0x1.62e42fee00000p-1;
  constexpr double ln2_low = 0x1.a39ef35793c76p-33;
  const double k = std::nearbyint(x / (ln2_high + ln2_low));
  const double r = (x - k * ln2_high) - k * ln2_low;
  double sum = 1;
  for (int n = 14; n >= 1; --n) sum = 1 + r / n * sum;  // Taylor's series, the remainder below 1e-17
  return std::ldexp(sum, static_cast<int>(k));
}

Normal::Normal() {
  constexpr int half = static_cast<int>(reach * steps);
  const auto density = [](double z) { return 0.3989422804014327 * exp_exact(-0.5 * z * z); };
  // From the left tail up to 0, so that small probabilities keep their relative accuracy; then by symmetry.
  std::vector<double> left{9.479534822203318e-18};  // Φ(−8.5)
  for (int i = 0; i < half; ++i) {
    const double z = -reach + static_cast<double>(i) / steps;
    const double area = density(z) + 4 * density(z + 0.5 / steps) + density(z + 1.0 / steps);
    left.push_back(left.back() + area / (6.0 * steps));
  }
  left.front() = 0;
  left.back() = 0.5;
  std::vector<double> z;
  for (int i = -half; i <= half; ++i) {
    cdf_.push_back(i <= 0 ? left[static_cast<std::size_t>(half + i)] : 1 - left[static_cast<std::size_t>(half - i)]);
    z.push_back(static_cast<double>(i) / steps);
  }
  quantile_ = Quantiles(cdf_, std::move(z));
}

const Normal& normal() {
  static const Normal table;
  return table;
}

}  // namespace orch::apps
