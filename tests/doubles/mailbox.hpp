// How bytes get from rank to rank in NCCL's stead: what a rank puts down for a peer, the peer takes, whole and in
// order.
//
// A program links one of two: ranks are threads of one process (thread_mailbox.cpp), where a test looks at the record;
// or processes of one host (process_mailbox.cpp), where a broken rule ends the process.
// Used under the doubles' mutex. Units: bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "nccl_double.hpp"

namespace orch::test::nccl {

class Mailbox {
 public:
  Mailbox() = default;
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  /// Takes back what nobody took.
  virtual ~Mailbox() = default;

  /// Sees what others have done since; all else speaks of what was seen last.
  virtual void look() = 0;
  /// Whether all ranks have joined.
  [[nodiscard]] virtual bool complete() const = 0;
  /// Whether a peer's end was noticed.
  [[nodiscard]] virtual bool lost(int peer) const = 0;

  /// The bytes stay as they are until they are taken.
  virtual void put(int peer, std::span<const std::byte> bytes) = 0;
  /// How many times a peer has taken what was put down for it.
  [[nodiscard]] virtual std::uint64_t taken_by(int peer) const = 0;
  /// Bytes of what a peer put down and this rank takes next.
  [[nodiscard]] virtual std::optional<std::size_t> next_from(int peer) const = 0;
  virtual void take(int peer, std::byte* to) = 0;
};

/// Nothing if the rank has joined under that id already.
[[nodiscard]] std::unique_ptr<Mailbox> open_mailbox(const std::string& id, int rank, int ranks);
/// What holds until a test says otherwise.
[[nodiscard]] Rules standing_rules();

}  // namespace orch::test::nccl
