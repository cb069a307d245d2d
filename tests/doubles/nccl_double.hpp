// NCCL's C interface on the doubles' streams: moves the bytes, checks what NCCL demands, and fails when told to.
//
// A group is posted when everything before it in its stream is done, as NCCL's kernel would begin; it is done when all
// its messages have met. Messages of a pair meet in their order. What breaks a rule is noted, so that a test sees it by
// name; or, where ranks are processes, said and deadly. Which of them ranks are, a program says with the mailbox that
// it links (mailbox.hpp).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace orch::test::nccl {

struct Rules {
  std::size_t group_bytes = SIZE_MAX;  ///< most of a group, sends and receives
  bool registered_only = false;        ///< messages lie in registered memory
  bool deadly = false;                 ///< what breaks a rule is said and ends the process
};

struct Record {
  std::vector<std::string> violations;
  std::uint64_t groups = 0;
  std::uint64_t messages = 0;  ///< sends
  std::uint64_t taken = 0;     ///< of them, by their receives
  std::uint64_t bytes = 0;     ///< sent
  std::size_t largest_group = 0;
  std::vector<int> aborted;  ///< ranks
  std::vector<int> left;     ///< ranks that ended orderly
};

/// Forgets everything.
void reset(const Rules& rules = {});
[[nodiscard]] Record record();

/// From its n-th group on the communicator of a rank says that a peer failed.
void fail_at(int rank, std::uint64_t group);
/// From its n-th group on nothing of a rank gets through any more.
void stall_at(int rank, std::uint64_t group);
/// What ncclGetVersion() says; ranks with other devices may differ.
void set_version(int device, int version);
/// An abort of a rank takes so long that nobody should wait for it: seven seconds.
void hang_abort(int rank);
/// Registration is refused on a device.
void refuse_registration(int device);

}  // namespace orch::test::nccl
