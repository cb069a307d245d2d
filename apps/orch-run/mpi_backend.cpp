#include <utility>

#include "backend.hpp"

namespace orch::apps {

namespace {

class MpiBackend final : public Backend {
 public:
  MpiBackend(int& argc, char**& argv, const runtime::MpiOptions& options) : mpi_(argc, argv, options) {}

  [[nodiscard]] std::uint32_t rank() const override { return mpi_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const override { return mpi_.ranks(); }
  [[nodiscard]] std::string host() const override { return mpi_.host(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& what, const std::string& mine) override {
    return mpi_.all_gather(what, mine);
  }
  void all_to_all(const std::string& what, std::span<const runtime::SendRun> sends,
                  std::span<const runtime::ReceiveRun> receives) override {
    mpi_.all_to_all(what, sends, receives);
  }
  void barrier(const std::string& what) override { mpi_.barrier(what); }
  void abort(int exit_code) override { mpi_.abort(exit_code); }

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
  [[nodiscard]] runtime::MpiTransport* mpi() override { return &mpi_; }

 private:
  runtime::MpiTransport mpi_;
  runtime::PhaseLoad load_;
};

}  // namespace

std::unique_ptr<Backend> mpi_backend(int& argc, char**& argv, const runtime::MpiOptions& options) {
  return std::make_unique<MpiBackend>(argc, argv, options);
}

}  // namespace orch::apps
