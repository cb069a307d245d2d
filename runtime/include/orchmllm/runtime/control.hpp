// Control plane: what ranks say to each other beside the bytes of exchanges, for transports whose data plane cannot
// speak of itself (NCCL). Through MPI (mpi_transport.hpp) or a store of the job's own over TCP (tcp_control.hpp).
//
// A rank that waits for its data plane calls attend() now and then: others learn from it what it waits for, and it
// learns that another rank has given up. All waits are bounded. Used by one thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orch::runtime {

class ControlPlane {
 public:
  ControlPlane() = default;
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;
  virtual ~ControlPlane() = default;

  [[nodiscard]] virtual std::uint32_t rank() const = 0;
  [[nodiscard]] virtual std::uint32_t ranks() const = 0;
  /// Name of the host, for topologies.
  [[nodiscard]] virtual std::string host() const = 0;

  [[nodiscard]] virtual std::vector<std::string> all_gather(const std::string& what, const std::string& mine) = 0;
  virtual void barrier(const std::string& what) = 0;

  /// Answers those who ask what this rank waits for. Throws TransportError if a rank has given up or is gone.
  virtual void attend(const std::string& waiting) = 0;
  /// Asks all others; names those who do not answer, and what the others say: "; no answer from rank 2; rank 1: …".
  [[nodiscard]] virtual std::string ask_around(const std::string& waiting) = 0;
  /// This rank gives up and says why: attend() of the others throws it.
  virtual void give_up(const std::string& why) noexcept = 0;
  /// Ends every rank of the job that the control plane can end, and this one.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

}  // namespace orch::runtime
