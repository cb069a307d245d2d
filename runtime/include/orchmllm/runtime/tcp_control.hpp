// The control plane through a store over TCP, without MPI: rank 0 keeps it in a thread, every rank is a client of it.
//
// Ranks find each other at the address and port of their launch. A rank that is missing, there twice, of another job or
// of another number of ranks ends the meeting on all ranks, with its name, after `timeout` at most. Later a connection
// that ends without a word is noticed at once by whoever waits. A process that does not speak the store's language is
// sent away and otherwise ignored. Messages are as long as they say, at most 1 GiB.
// The store is for jobs on a network of their own: it knows no passwords.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "orchmllm/runtime/control.hpp"
#include "orchmllm/runtime/launch.hpp"

namespace orch::runtime {

class TcpControl final : public ControlPlane {
 public:
  /// All ranks of the job take part.
  TcpControl(const Launch& launch, std::chrono::duration<double> timeout);
  ~TcpControl() override;

  [[nodiscard]] std::uint32_t rank() const override;
  [[nodiscard]] std::uint32_t ranks() const override;
  [[nodiscard]] std::string host() const override;
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& what, const std::string& mine) override;
  void barrier(const std::string& what) override;
  void attend(const std::string& waiting) override;
  [[nodiscard]] std::string ask_around(const std::string& waiting) override;
  void give_up(const std::string& why) noexcept override;
  [[noreturn]] void abort(int exit_code) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace orch::runtime
