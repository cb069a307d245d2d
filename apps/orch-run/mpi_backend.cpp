#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "backend.hpp"

namespace orch::apps {

namespace {

using runtime::MpiTransport;

class MpiBackend final : public Backend {
 public:
  explicit MpiBackend(MpiTransport& mpi) : Backend(mpi), mpi_(mpi) {}

  void all_to_all(const std::string& what, std::span<const runtime::SendRun> sends,
                  std::span<const runtime::ReceiveRun> receives) override {
    mpi_.all_to_all(what, sends, receives);
  }
  void flip(std::byte* at) override { *at ^= std::byte{1}; }
  void compute(const runtime::PhaseFlops& flops, double scale, bool backward) override {
    load_.run(flops, scale, backward);
  }
  [[nodiscard]] Steps steps(FaultyTransport<Backend>& transport, runtime::ExecutorOptions options) override {
    auto executor = std::make_shared<runtime::Executor<FaultyTransport<Backend>>>(transport, std::move(options));
    return [executor](std::uint64_t step, const StepPlan& plan, const RankView& view) {
      return executor->run(step, plan, view);
    };
  }

  [[nodiscard]] LoadShape load_shape() const override {
    constexpr auto rows = static_cast<double>(runtime::Products::rows);
    return {rows, rows, runtime::AttentionLoad::head_dim, runtime::AttentionLoad::rows};
  }

  [[nodiscard]] DeviceLoads loads() override {
    DeviceLoads loads{Timing::quickest,
                      "single precision",
                      host_bytes(),
                      4e6,
                      runtime::Products::rows,
                      runtime::AttentionLoad::head_dim,
                      {},
                      {},
                      0,
                      {}};
    for (const std::size_t depth : {16U, 32U, 64U, 128U, 256U, 512U}) {
      loads.products.push_back(
          {depth, [products = runtime::Products(depth)](double flops) mutable { products.run(flops); }});
    }
    for (const bool causal : {false, true}) {
      for (const std::size_t length : {64U, 128U, 256U, 512U, 1024U}) {
        runtime::AttentionLoad load(length, causal);
        const double flops = load.forward_flops();
        loads.attention.push_back(
            {length, causal, flops,
             [load = std::move(load)](double amount, bool backward) mutable { load.run(amount, backward); }});
      }
    }
    constexpr std::size_t bytes = std::size_t{32} << 20U;
    loads.copied_bytes = bytes;
    loads.copy = [rows = ragged_rows(bytes), from = std::vector<std::byte>(bytes),
                  to = std::vector<std::byte>(bytes)]() mutable {
      for (const RaggedRow& row : rows) std::memcpy(to.data() + row.to, from.data() + row.from, row.bytes);
    };
    return loads;
  }
  [[nodiscard]] std::span<std::byte> message_memory(std::size_t bytes, bool incoming) override {
    std::vector<std::byte>& memory = messages_[incoming ? 1 : 0];
    if (memory.size() < bytes) memory.resize(bytes);
    return std::span(memory).first(bytes);
  }
  [[nodiscard]] std::uint64_t largest_message() const override { return std::uint64_t{16} << 20U; }

 private:
  [[nodiscard]] static double host_bytes() {
    return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  }

  MpiTransport& mpi_;
  runtime::PhaseLoad load_;
  std::array<std::vector<std::byte>, 2> messages_;
};

}  // namespace

bool has_mpi() { return true; }

std::unique_ptr<runtime::ControlPlane> mpi_control(int& argc, char**& argv, const runtime::MpiOptions& options) {
  return std::make_unique<MpiTransport>(argc, argv, options);
}

void require_mpi(const runtime::ControlPlane& control) {
  if (dynamic_cast<const MpiTransport*>(&control) != nullptr) return;
  throw InvalidInput(
      "--transport mpi: these ranks were not started through MPI; launch them with mpirun, or with srun --mpi=pmix");
}

std::unique_ptr<Backend> mpi_backend(runtime::ControlPlane& control) {
  return std::make_unique<MpiBackend>(dynamic_cast<MpiTransport&>(control));
}

}  // namespace orch::apps
