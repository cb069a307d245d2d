// Transport: what the executor asks of a network, no more.
//
//   all_gather    a short text of every rank, for plan hashes and reports
//   all_to_all    runs of bytes, each from one rank's memory to another's: only pairs that exchange something
//   barrier       until every rank is there
//   abort         ends every rank of the job
//
// Every call names what it is for, so that an error can say where a peer is missing. A transport waits for a bounded
// time: a peer that is dead or stalls is a TransportError that names the call, the peer and what was awaited.
// Between two ranks, runs of the same number meet; both sides state the same runs and sizes. Units: bytes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orch::runtime {

/// Bytes for one peer. `number` tells the runs of a pair of ranks apart: fields, and stages that run together.
struct SendRun {
  std::uint32_t peer = 0;
  std::uint32_t number = 0;
  std::span<const std::byte> bytes;
};

/// Bytes from one peer, and where they go.
struct ReceiveRun {
  std::uint32_t peer = 0;
  std::uint32_t number = 0;
  std::span<std::byte> bytes;
};

template <class T>
concept Transport = requires(T& transport, const std::string& what, const std::string& mine,
                             std::span<const SendRun> sends, std::span<const ReceiveRun> receives, int exit_code) {
  { transport.rank() } -> std::same_as<std::uint32_t>;
  { transport.ranks() } -> std::same_as<std::uint32_t>;
  { transport.all_gather(what, mine) } -> std::same_as<std::vector<std::string>>;
  transport.all_to_all(what, sends, receives);
  transport.barrier(what);
  transport.abort(exit_code);
};

}  // namespace orch::runtime
