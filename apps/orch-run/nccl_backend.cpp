#include <fmt/format.h>

#include <utility>

#include "backend.hpp"
#include "orchmllm/runtime/device_memory.hpp"
#include "orchmllm/runtime/gpu_compute.hpp"
#include "orchmllm/runtime/mpi_control.hpp"
#include "orchmllm/runtime/nccl_transport.hpp"
#include "orchmllm/runtime/tcp_control.hpp"

namespace orch::apps {

namespace {

using Seconds = std::chrono::duration<double>;

/// Ranks of an MPI launcher meet through MPI, others through a store.
std::unique_ptr<runtime::ControlPlane> find_control(int& argc, char**& argv, const ExecuteOptions& options) {
  const Seconds timeout(options.timeout_seconds);
  if (!runtime::launched_by_mpi()) {
    if (const auto launch = runtime::find_launch()) return std::make_unique<runtime::TcpControl>(*launch, timeout);
  }
  return std::make_unique<runtime::MpiControl>(
      argc, argv, runtime::MpiOptions{.timeout = timeout, .spin = Seconds(options.spin_milliseconds / 1e3)});
}

class NcclBackend final : public Backend {
 public:
  NcclBackend(std::unique_ptr<runtime::ControlPlane> control, const ExecuteOptions& options)
      : control_(std::move(control)),
        queue_(std::make_unique<runtime::device::Queue>()),
        nccl_(*control_, *queue_,
              {.timeout = Seconds(options.timeout_seconds), .max_channels = options.nccl_channels}) {}

  [[nodiscard]] std::uint32_t rank() const override { return nccl_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const override { return nccl_.ranks(); }
  [[nodiscard]] std::string host() const override { return nccl_.host(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& what, const std::string& mine) override {
    return nccl_.all_gather(what, mine);
  }
  void all_to_all(const std::string& what, std::span<const runtime::SendRun> sends,
                  std::span<const runtime::ReceiveRun> receives) override {
    nccl_.all_to_all(what, sends, receives);
  }
  void barrier(const std::string& what) override { nccl_.barrier(what); }
  void abort(int exit_code) override { nccl_.abort(exit_code); }

  void flip(std::byte* at) override {
    std::byte byte{};
    runtime::device::copy(&byte, at, 1, queue_->stream);
    queue_->stream.synchronize();
    byte ^= std::byte{1};
    runtime::device::copy(at, &byte, 1, queue_->stream);
    queue_->stream.synchronize();
  }
  void compute(const runtime::PhaseFlops& flops, double scale, bool backward) override {
    if (!(flops.total() * scale > 0)) return;
    if (!load_) load_ = std::make_unique<runtime::GpuProducts>(*queue_);
    load_->run(flops, scale, backward);
  }
  [[nodiscard]] Steps steps(FaultyTransport<Backend>& transport, runtime::ExecutorOptions options) override {
    using Executor = runtime::Executor<FaultyTransport<Backend>, runtime::DeviceMemory>;
    auto executor = std::make_shared<Executor>(transport, std::move(options), runtime::DeviceMemory(*queue_, nccl_));
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
            {"peer_bytes", memory.peer_bytes}};
  }

 private:
  std::unique_ptr<runtime::ControlPlane> control_;
  std::unique_ptr<runtime::device::Queue> queue_;
  runtime::NcclTransport nccl_;
  std::unique_ptr<runtime::GpuProducts> load_;
};

}  // namespace

std::unique_ptr<Backend> nccl_backend(int& argc, char**& argv, const ExecuteOptions& options) {
  const int devices = runtime::device::count();
  if (devices == 0) {
    throw InvalidInput(
        "--transport nccl: this machine has no CUDA device, or its driver is older than the CUDA of "
        "this build; --transport mpi runs on CPUs");
  }
  runtime::device::select(static_cast<int>(runtime::find_local_rank() % static_cast<std::uint32_t>(devices)));
  return std::make_unique<NcclBackend>(find_control(argc, argv, options), options);
}

}  // namespace orch::apps
