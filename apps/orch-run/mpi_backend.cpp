#include <utility>

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

 private:
  MpiTransport& mpi_;
  runtime::PhaseLoad load_;
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
  require_mpi(control);
  return std::make_unique<MpiBackend>(dynamic_cast<MpiTransport&>(control));
}

}  // namespace orch::apps
