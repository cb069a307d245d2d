// Compute for realism on a GPU: cuBLAS products of a phase's operations, bf16 with sums in single precision.
//
// Products with weights are rows of 4,096 by a 4,096 × 4,096 matrix. Attention is two products a head, 1,024 positions
// of 128 numbers: positions by positions, then by values, without the softmax between them; it has the shape and the
// operations of attention, and moves more memory than a fused kernel would. Both are rounded to whole rows: 33,554,432
// and 524,288 operations. Units: floating-point operations, a multiply-add is two.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "orchmllm/runtime/compute.hpp"
#include "orchmllm/runtime/device.hpp"

namespace orch::runtime {

class GpuProducts {
 public:
  /// The queue outlives this.
  explicit GpuProducts(device::Queue& queue);
  GpuProducts(const GpuProducts&) = delete;
  GpuProducts& operator=(const GpuProducts&) = delete;
  ~GpuProducts();

  /// Runs a share of a phase's forward operations, and waits for them; backward twice as many in products, and 5/2 of
  /// attention's, as gradients take.
  void run(const PhaseFlops& flops, double scale, bool backward);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace orch::runtime
