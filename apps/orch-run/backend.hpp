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
#include "loads.hpp"
#include "options.hpp"
#include "orchmllm/runtime/compute.hpp"
#include "orchmllm/runtime/control.hpp"
#include "orchmllm/runtime/executor.hpp"
#include "orchmllm/runtime/mpi_transport.hpp"

namespace orch::apps {

class Backend {
 public:
  /// Executes a step of a plan on this rank.
  using Steps = std::function<runtime::StepReport(std::uint64_t step, const StepPlan& plan, const RankView& view)>;

  explicit Backend(runtime::ControlPlane& control) : control_(control) {}
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  [[nodiscard]] std::uint32_t rank() const { return control_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const { return control_.ranks(); }
  [[nodiscard]] std::string host() const { return control_.host(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& what, const std::string& mine) {
    return control_.all_gather(what, mine);
  }
  void barrier(const std::string& what) { control_.barrier(what); }
  void abort(int exit_code) { control_.abort(exit_code); }
  virtual void all_to_all(const std::string& what, std::span<const runtime::SendRun> sends,
                          std::span<const runtime::ReceiveRun> receives) = 0;

  /// Flips the lowest bit of a byte of the memory that exchanges run in.
  virtual void flip(std::byte* at) = 0;
  virtual void compute(const runtime::PhaseFlops& flops, double scale, bool backward) = 0;
  /// Both live as long as the steps.
  [[nodiscard]] virtual Steps steps(FaultyTransport<Backend>& transport, runtime::ExecutorOptions options) = 0;
  [[nodiscard]] virtual LoadShape load_shape() const = 0;
  /// Of this rank's device, for the report; null where there is nothing to say.
  [[nodiscard]] virtual Json device() { return nullptr; }

  // For calibrate.
  [[nodiscard]] virtual DeviceLoads loads() = 0;
  /// Of messages to or from others, until the next call; its contents are whatever they were.
  [[nodiscard]] virtual std::span<std::byte> message_memory(std::size_t bytes, bool incoming) = 0;
  /// From there on links are as fast as they get.
  [[nodiscard]] virtual std::uint64_t largest_message() const = 0;

 private:
  runtime::ControlPlane& control_;
};

static_assert(runtime::Transport<Backend>);

/// How ranks meet before anything else: through MPI if a launcher of MPI started them, otherwise through a store over
/// TCP. A process that nobody launched is a rank alone.
[[nodiscard]] std::unique_ptr<runtime::ControlPlane> find_control(int& argc, char**& argv, const std::string& transport,
                                                                  const runtime::MpiOptions& options);
/// Throws InvalidInput if this build, this machine or the way ranks were started does not allow the transport.
void require_transport(const runtime::ControlPlane& control, const std::string& transport);
/// All ranks take part. The control plane outlives what is returned.
[[nodiscard]] std::unique_ptr<Backend> make_backend(runtime::ControlPlane& control, const TransportOptions& options);

// Parts of a build that may be missing (mpi_missing.cpp, nccl_missing.cpp).
[[nodiscard]] bool has_mpi();
[[nodiscard]] std::unique_ptr<runtime::ControlPlane> mpi_control(int& argc, char**& argv,
                                                                 const runtime::MpiOptions& options);
void require_mpi(const runtime::ControlPlane& control);
[[nodiscard]] std::unique_ptr<Backend> mpi_backend(runtime::ControlPlane& control);
void require_nccl();
[[nodiscard]] std::unique_ptr<Backend> nccl_backend(runtime::ControlPlane& control, const TransportOptions& options);

}  // namespace orch::apps
