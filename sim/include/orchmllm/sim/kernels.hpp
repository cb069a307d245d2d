// Time of the operators of a transformer layer on one GPU: matrix products, attention, memory-bound operators.
//
// A product of M × K and K × N elements is computed in tiles of its output, one on each multiprocessor at a time:
//
//   seconds = max( 2·M·N·K / (peak · sustained · e),  bytes read and written / memory bandwidth )
//   e       = K / (K + half depth) · max over tiles t of  efficiency(t) · M·N / (waves(t) · multiprocessors · rows ·
//   columns) waves   = ⌈ ⌈M / rows⌉ · ⌈N / columns⌉ / multiprocessors ⌉
//
// so a small or narrow product is slow because multiprocessors stand idle and tiles are short. Attention runs at the
// measured rate of its head size, mask and length. Units: elements, seconds. Complexity: O(tiles).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "orchmllm/sim/cluster.hpp"

namespace orch::sim {

/// Bytes of an activation or gradient element outside of fp8 products.
inline constexpr double activation_bytes = 2;

/// 0 if any dimension is 0.
[[nodiscard]] double gemm_seconds(double m, double n, double k, Precision precision, const Gpu& gpu);

/// Forward product, and the two products of its backward pass: gradients of inputs and of weights.
struct ProductSeconds {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;

  ProductSeconds& operator+=(const ProductSeconds& other) {
    forward += other.forward;
    input_gradient += other.input_gradient;
    weight_gradient += other.weight_gradient;
    return *this;
  }
};
/// M tokens through K × N weights.
[[nodiscard]] ProductSeconds product_seconds(double m, double n, double k, Precision precision, const Gpu& gpu);

/// Head size of the kernel that runs heads of `head_dim`: the next size that exists.
[[nodiscard]] std::uint64_t kernel_head_dim(const Gpu& gpu, std::uint64_t head_dim);
/// The measured kernel that stands for heads of `head_dim`: same mask, the closest size at or above, else the largest.
[[nodiscard]] const AttentionRate& attention_rate(const Gpu& gpu, std::uint64_t head_dim, bool causal);

}  // namespace orch::sim
