#include <utility>

#include "backend.hpp"
#include "orchmllm/runtime/device_memory.hpp"
#include "orchmllm/runtime/gpu_compute.hpp"
#include "orchmllm/runtime/launch.hpp"
#include "orchmllm/runtime/nccl_transport.hpp"

namespace orch::apps {

namespace {

class NcclBackend final : public Backend {
 public:
  NcclBackend(runtime::ControlPlane& control, const ExecuteOptions& options)
      : Backend(control),
        nccl_(control, queue_,
              {.timeout = std::chrono::duration<double>(options.timeout_seconds),
               .max_channels = options.nccl_channels}) {}

  void all_to_all(const std::string& what, std::span<const runtime::SendRun> sends,
                  std::span<const runtime::ReceiveRun> receives) override {
    nccl_.all_to_all(what, sends, receives);
  }
  void flip(std::byte* at) override {
    std::byte byte{};
    runtime::device::copy(&byte, at, 1, queue_.stream);
    queue_.stream.synchronize();
    byte ^= std::byte{1};
    runtime::device::copy(at, &byte, 1, queue_.stream);
    queue_.stream.synchronize();
  }
  void compute(const runtime::PhaseFlops& flops, double scale, bool backward) override {
    if (!(flops.total() * scale > 0)) return;
    if (!load_) load_ = std::make_unique<runtime::GpuPhaseLoad>(queue_);
    load_->run(flops, scale, backward);
  }
  [[nodiscard]] Steps steps(FaultyTransport<Backend>& transport, runtime::ExecutorOptions options) override {
    using Executor = runtime::Executor<FaultyTransport<Backend>, runtime::DeviceMemory>;
    auto executor = std::make_shared<Executor>(transport, std::move(options), runtime::DeviceMemory(queue_, nccl_));
    return [executor](std::uint64_t step, const StepPlan& plan, const RankView& view) {
      return executor->run(step, plan, view);
    };
  }
  [[nodiscard]] Json device() override {
    const runtime::NcclMemory memory = nccl_.memory();
    return {{"name", runtime::device::name()},
            {"nccl", nccl_.version()},
            {"communicator_bytes", memory.communicator_bytes},
            {"peers", memory.peers},
            {"peer_bytes", memory.peer_bytes},
            {"registered_bytes", memory.registered_bytes}};
  }

 private:
  runtime::device::Queue queue_;
  runtime::NcclTransport nccl_;
  std::unique_ptr<runtime::GpuPhaseLoad> load_;
};

}  // namespace

void require_nccl() {
  const int devices = runtime::device::count();
  if (devices == 0) {
    throw InvalidInput("--transport nccl: no CUDA device can be used on this machine (" + runtime::device::why_none() +
                       "); --transport mpi runs on CPUs");
  }
  runtime::device::select(static_cast<int>(runtime::find_local_rank() % static_cast<std::uint32_t>(devices)));
}

std::unique_ptr<Backend> nccl_backend(runtime::ControlPlane& control, const ExecuteOptions& options) {
  return std::make_unique<NcclBackend>(control, options);
}

}  // namespace orch::apps
