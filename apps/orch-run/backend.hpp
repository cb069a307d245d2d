// What a run needs of the machine: the ranks' transport, the memory that exchanges run in, the load between them.
//
// mpi: ranks of mpirun or srun, host memory, Eigen. nccl: a GPU each, its memory, cuBLAS; control through MPI or a TCP
// store. Models the runtime's concept Transport.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fault.hpp"
#include "options.hpp"
#include "orchmllm/runtime/compute.hpp"
#include "orchmllm/runtime/executor.hpp"
#include "orchmllm/runtime/mpi_transport.hpp"

namespace orch::apps {

class Backend {
 public:
  /// Executes a step of a plan on this rank.
  using Steps = std::function<runtime::StepReport(std::uint64_t step, const StepPlan& plan, const RankView& view)>;

  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::uint32_t rank() const = 0;
  [[nodiscard]] virtual std::uint32_t ranks() const = 0;
  [[nodiscard]] virtual std::string host() const = 0;
  [[nodiscard]] virtual std::vector<std::string> all_gather(const std::string& what, const std::string& mine) = 0;
  virtual void all_to_all(const std::string& what, std::span<const runtime::SendRun> sends,
                          std::span<const runtime::ReceiveRun> receives) = 0;
  virtual void barrier(const std::string& what) = 0;
  virtual void abort(int exit_code) = 0;

  /// Flips the lowest bit of a byte of the memory that exchanges run in.
  virtual void flip(std::byte* at) = 0;
  virtual void compute(const runtime::PhaseFlops& flops, double scale, bool backward) = 0;
  /// Both live as long as the steps.
  [[nodiscard]] virtual Steps steps(FaultyTransport<Backend>& transport, runtime::ExecutorOptions options) = 0;
  /// Of this rank's device, for the report; null where there is nothing to say.
  [[nodiscard]] virtual Json device() { return nullptr; }
  /// The MPI transport, where it carries the bytes.
  [[nodiscard]] virtual runtime::MpiTransport* mpi() { return nullptr; }
};

static_assert(runtime::Transport<Backend>);

/// Ranks over MPI.
[[nodiscard]] std::unique_ptr<Backend> mpi_backend(int& argc, char**& argv, const runtime::MpiOptions& options);
/// Ranks over NCCL. Without CUDA and NCCL in the build, or without a GPU, throws InvalidInput that says so.
[[nodiscard]] std::unique_ptr<Backend> nccl_backend(int& argc, char**& argv, const ExecuteOptions& options);

}  // namespace orch::apps
