// The load of a GPU, a small share of it, computed by the host at the same place of the stream.
// SPDX-License-Identifier: Apache-2.0
#include "device_double.hpp"
#include "orchmllm/runtime/gpu_compute.hpp"

namespace orch::runtime {

namespace {

constexpr double share = 1e-4;  // a GPU is that much faster than a core

template <class Load, class... Arguments>
void run_in_stream(device::Queue& queue, Load& load, Arguments... arguments) {
  test::gpu::enqueue(queue.stream.native(), [&load, arguments...] {
    load.run(arguments...);
    return true;
  });
  queue.stream.synchronize();
}

}  // namespace

struct GpuProducts::State {
  device::Queue& queue;
  Products load;
};

GpuProducts::GpuProducts(device::Queue& queue, std::size_t width_of_matrix)
    : state_(new State{queue, Products(width_of_matrix / 32)}) {}
GpuProducts::~GpuProducts() = default;
void GpuProducts::run(double flops) { run_in_stream(state_->queue, state_->load, share * flops); }

struct GpuAttention::State {
  device::Queue& queue;
  AttentionLoad load;
};

GpuAttention::GpuAttention(device::Queue& queue, std::size_t positions, bool causal)
    : state_(new State{queue, AttentionLoad(positions / 8, causal)}) {}
GpuAttention::~GpuAttention() = default;
void GpuAttention::run(double flops, bool backward) {
  run_in_stream(state_->queue, state_->load, share * flops, backward);
}

}  // namespace orch::runtime
