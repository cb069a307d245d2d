// The transport over MPI, on CPU memory: non-blocking sends and receives of what the plan says, every wait bounded.
//
// A run longer than `chunk_bytes` travels in several messages, so that sizes beyond MPI's int are carried and a slow
// link is told from a dead one. Waits poll; if nothing completes for `timeout`, the rank asks all others what they wait
// for, and the TransportError names those who do not answer, and what the others say. Ranks that wait answer such
// questions. A run to the rank itself is a copy. Used by one thread. Needs no threads of MPI beyond
// MPI_THREAD_FUNNELED. It is a control plane, too, for transports that need one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/runtime/control.hpp"
#include "orchmllm/runtime/transport.hpp"

namespace orch::runtime {

struct MpiOptions {
  std::chrono::duration<double> timeout{60};         ///< without any progress
  std::chrono::duration<double> spin{0.1};           ///< without progress, after which a wait leaves the core to others
  std::size_t chunk_bytes = std::size_t{64} << 20U;  ///< largest message, below 2^31
};

class MpiTransport final : public ControlPlane {
 public:
  /// Initialises MPI, unless that is done, and then also finalises it. All ranks of the job take part.
  MpiTransport(int& argc, char**& argv, const MpiOptions& options);
  ~MpiTransport() override;

  [[nodiscard]] std::uint32_t rank() const override;
  [[nodiscard]] std::uint32_t ranks() const override;
  [[nodiscard]] std::string host() const override;
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& what, const std::string& mine) override;
  void all_to_all(const std::string& what, std::span<const SendRun> sends, std::span<const ReceiveRun> receives);
  void barrier(const std::string& what) override;
  void attend(const std::string& waiting) override;
  [[nodiscard]] std::string ask_around(const std::string& waiting) override;
  void give_up(const std::string& why) noexcept override;
  [[noreturn]] void abort(int exit_code) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

static_assert(Transport<MpiTransport>);

}  // namespace orch::runtime
