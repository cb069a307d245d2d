#include <memory>
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
  NcclBackend(runtime::ControlPlane& control, const TransportOptions& options)
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

  [[nodiscard]] LoadShape load_shape() const override {
    constexpr auto rows = static_cast<double>(runtime::GpuProducts::rows);
    return {rows, runtime::GpuProducts::width, runtime::GpuAttention::head_dim, runtime::GpuAttention::length};
  }

  [[nodiscard]] DeviceLoads loads() override {
    DeviceLoads loads{Timing::apart,  // under load a GPU slows itself down
                      "bf16, sums in single precision",
                      static_cast<double>(runtime::device::memory_info().total),
                      1e11,
                      runtime::GpuProducts::rows,
                      runtime::GpuAttention::head_dim,
                      {},
                      {},
                      0,
                      {}};
    for (const std::size_t depth : {256U, 512U, 1024U, 2048U, 4096U, 8192U}) {
      const auto products = std::make_shared<runtime::GpuProducts>(queue_, depth);
      loads.products.push_back({depth, [products](double flops) { products->run(flops); }});
    }
    for (const bool causal : {false, true}) {
      for (const std::size_t length : {512U, 1024U, 2048U, 4096U, 8192U}) {
        const auto attention = std::make_shared<runtime::GpuAttention>(queue_, length, causal);
        loads.attention.push_back({length, causal, runtime::GpuAttention::forward_flops(length, causal),
                                   [attention](double amount, bool backward) { attention->run(amount, backward); }});
      }
    }
    constexpr std::size_t bytes = std::size_t{256} << 20U;  // many times the caches
    const auto copies = std::make_shared<Copies>(queue_, bytes);
    loads.copied_bytes = bytes;
    loads.copy = [copies] { copies->run(); };
    return loads;
  }
  [[nodiscard]] std::span<std::byte> message_memory(std::size_t bytes, bool incoming) override {
    return (incoming ? incoming_ : outgoing_).of(bytes, nccl_);
  }
  [[nodiscard]] std::uint64_t largest_message() const override { return std::uint64_t{64} << 20U; }

 private:
  /// Ragged rows as the executor copies them: lists made on the host, one kernel.
  class Copies {
   public:
    Copies(runtime::device::Queue& queue, std::size_t bytes) : memory_(queue), rows_(ragged_rows(bytes)) {
      from_ = memory_.of(buffers_[0], bytes).data();
      to_ = memory_.of(buffers_[1], bytes).data();
    }
    void run() {
      for (const RaggedRow& row : rows_) memory_.copy(from_ + row.from, to_ + row.to, row.bytes);
      memory_.settle();
    }

   private:
    runtime::DeviceBuffer buffers_[2];
    runtime::DeviceMemory memory_;
    std::vector<RaggedRow> rows_;
    std::byte* from_ = nullptr;
    std::byte* to_ = nullptr;
  };

  runtime::device::Queue queue_;
  runtime::NcclTransport nccl_;
  std::unique_ptr<runtime::GpuPhaseLoad> load_;
  runtime::DeviceBuffer outgoing_, incoming_;
};

}  // namespace

void require_nccl() {
  if (runtime::device::count() == 0) {
    throw InvalidInput("--transport nccl: no CUDA device can be used on this machine (" + runtime::device::why_none() +
                       "); --transport mpi runs on CPUs");
  }
}

std::unique_ptr<Backend> nccl_backend(runtime::ControlPlane& control, const TransportOptions& options) {
  const auto devices = static_cast<std::uint32_t>(runtime::device::count());
  runtime::device::select(static_cast<int>(runtime::find_local_rank() % devices));
  return std::make_unique<NcclBackend>(control, options);
}

}  // namespace orch::apps
