// The load of a GPU, computed by the host at the same place of the stream.
// SPDX-License-Identifier: Apache-2.0
#include "device_double.hpp"
#include "orchmllm/runtime/gpu_compute.hpp"

namespace orch::runtime {

struct GpuProducts::State {
  device::Queue& queue;
  PhaseLoad load;
};

GpuProducts::GpuProducts(device::Queue& queue) : state_(new State{queue, {}}) {}
GpuProducts::~GpuProducts() = default;

void GpuProducts::run(const PhaseFlops& flops, double scale, bool backward) {
  test::gpu::enqueue(state_->queue.stream.native(), [this, flops, scale, backward] {
    state_->load.run(flops, scale, backward);
    return true;
  });
  state_->queue.stream.synchronize();
}

}  // namespace orch::runtime
