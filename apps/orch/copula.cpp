#include "copula.hpp"

#include <cmath>

namespace orch::apps {

std::optional<Matrix> cholesky(const Matrix& matrix) {
  constexpr double smallest_pivot = 1e-9;  // of a variance of 1: below it a quantity follows from the others
  Matrix lower(matrix.size());
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    lower[i].resize(i + 1);
    for (std::size_t j = 0; j <= i; ++j) {
      double rest = matrix[i][j];
      for (std::size_t k = 0; k < j; ++k) rest -= lower[i][k] * lower[j][k];
      if (i != j) {
        lower[i][j] = rest / lower[j][j];
      } else {
        if (!(rest > smallest_pivot)) return std::nullopt;
        lower[i][i] = std::sqrt(rest);
      }
    }
  }
  return lower;
}

}  // namespace orch::apps
