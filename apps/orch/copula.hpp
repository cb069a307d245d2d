// Correlated draws with given marginals: a Gaussian copula.
//
// A sample's quantities are tables at u_i = Φ(x_i), x = L z, z independent standard normals and L Lᵀ the correlation
// matrix. The matrix is that of the normals; the rank correlation of two smooth quantities is 6/π · asin(r/2), within
// 0.02 of r. Complexity: O(n²) a draw, O(n³) once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace orch::apps {

using Matrix = std::vector<std::vector<double>>;

/// The lower triangle L with L Lᵀ = matrix, a symmetric one (only its lower half is read); nothing if it is not
/// positive definite.
[[nodiscard]] std::optional<Matrix> cholesky(const Matrix& matrix);

}  // namespace orch::apps
