// Faults on purpose, for tests alone: ORCH_RUN_FAULT=WHAT:RANK:PLACE:STEP makes that rank fail, the first
// time that it comes to that place in that step or later.
//
// WHAT is kill (the process ends as if the kernel killed it), stall (it does nothing any more) or corrupt (one bit of
// what it receives is flipped; PLACE is exchange). PLACE is planning, exchange or compute.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/runtime/transport.hpp"

namespace orch::apps {

struct Fault {
  enum class Kind : std::uint8_t { none, kill, stall, corrupt };
  Kind kind = Kind::none;
  std::uint32_t rank = 0;
  std::string place;
  std::uint64_t step = 0;

  /// From the environment; throws InvalidInput for a text that is none.
  [[nodiscard]] static Fault from_environment();

  [[nodiscard]] bool is_at(const std::string& where, std::uint32_t of_rank, std::uint64_t of_step) const {
    return kind != Kind::none && place == where && rank == of_rank && of_step >= step;
  }
  /// Kills or stalls this process if that is the fault.
  void strike(const std::string& where, std::uint32_t of_rank, std::uint64_t of_step) const;
};

/// A transport that lets the fault happen in its exchanges. The inner one flips a bit of its memory.
template <class T>
class FaultyTransport {
 public:
  FaultyTransport(T& inner, const Fault& fault) : inner_(inner), fault_(fault) {}

  void begin_step(std::uint64_t step) { step_ = step; }

  [[nodiscard]] std::uint32_t rank() const { return inner_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const { return inner_.ranks(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& what, const std::string& mine) {
    return inner_.all_gather(what, mine);
  }
  void all_to_all(const std::string& what, std::span<const runtime::SendRun> sends,
                  std::span<const runtime::ReceiveRun> receives) {
    fault_.strike("exchange", rank(), step_);
    inner_.all_to_all(what, sends, receives);
    if (fault_.kind != Fault::Kind::corrupt || receives.empty() || !fault_.is_at("exchange", rank(), step_)) return;
    inner_.flip(&receives[0].bytes[receives[0].bytes.size() / 2]);
    fault_.kind = Fault::Kind::none;
  }
  void barrier(const std::string& what) { inner_.barrier(what); }
  void abort(int exit_code) { inner_.abort(exit_code); }

 private:
  T& inner_;
  Fault fault_;
  std::uint64_t step_ = 0;
};

}  // namespace orch::apps
