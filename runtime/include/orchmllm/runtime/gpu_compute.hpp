// Compute for realism on a GPU: cuBLAS products of a phase's operations, bf16 with sums in single precision.
//
// Attention is two products a head, positions by positions and then by values, without the softmax between them; it has
// the shape and the operations of attention, and moves more memory than a fused kernel would. Where it is causal,
// blocks of 512 positions meet those up to their own last one. Operations are rounded to whole rows. Whatever runs is
// waited for. Units: floating-point operations, a multiply-add is two.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "orchmllm/runtime/compute.hpp"
#include "orchmllm/runtime/device.hpp"

namespace orch::runtime {

/// Blocks of rows by one square matrix of weights.
class GpuProducts {
 public:
  static constexpr std::size_t rows = 4096;
  static constexpr std::size_t width = 4096;

  /// The queue outlives this.
  explicit GpuProducts(device::Queue& queue, std::size_t width_of_matrix = width);
  ~GpuProducts();
  void run(double flops);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Attention of heads over a number of positions, as many heads at once as fill the GPU.
class GpuAttention {
 public:
  static constexpr std::size_t head_dim = 128;
  static constexpr std::size_t length = 1024;

  /// The queue outlives this.
  explicit GpuAttention(device::Queue& queue, std::size_t positions = length, bool causal = false);
  ~GpuAttention();

  /// Operations of one head forward, where causal attention counts half of the square.
  [[nodiscard]] static double forward_flops(std::size_t positions, bool causal) {
    const auto count = static_cast<double>(positions);
    return (causal ? 2.0 : 4.0) * count * count * head_dim;
  }
  /// Forward operations; backward 5/2 of them, as gradients take.
  void run(double flops, bool backward);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// What a phase asks of a rank, one after the other.
class GpuPhaseLoad {
 public:
  /// The queue outlives this.
  explicit GpuPhaseLoad(device::Queue& queue) : products_(queue), attention_(queue) {}

  /// `flops` forward; backward twice as many in products, and the gradients of the same attention.
  void run(const PhaseFlops& flops, double scale, bool backward) {
    products_.run(flops.products * scale * (backward ? 2 : 1));
    attention_.run(flops.attention * scale, backward);
  }

 private:
  GpuProducts products_;
  GpuAttention attention_;
};

}  // namespace orch::runtime
