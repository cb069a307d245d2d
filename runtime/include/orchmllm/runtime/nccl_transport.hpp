// The transport over NCCL, on GPU memory: groups of ncclSend and ncclRecv of what the plan says, every wait bounded.
//
// Bytes of a pair of ranks are one stream, run after run. Pairs with little to say share the first group; the others
// follow in groups of a few distances (receiver − sender, modulo ranks) and a slice of each pair. Both ends of a pair
// know its bytes and its distance, so they put it into the same group without asking; groups have the same order on
// all ranks, so none waits for a later one. No group has more than `group_bytes`, sends and receives together; nothing
// of no bytes is sent. Groups run in a stream of their own, behind the queue's `ready` event; what is put into the
// queue after that event runs beside them. The call returns when everything has arrived.
//
// The communicator is non-blocking. Waits poll it, and the control plane; an asynchronous error, or no group done for
// `timeout`, ends it: the TransportError names those who do not answer and what the others wait for, is told to all
// others, who throw it in turn, and the communicator is aborted. NCCL puts no bound to that: after five seconds the
// communicator and all memory of the GPU are left alone. Afterwards the transport is of no use.
// What allocate() gives is registered with NCCL where every rank can. Needs NCCL 2.18, to compile and to run;
// registration 2.19. Used by one thread. Units: bytes.
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
#include "orchmllm/runtime/device_memory.hpp"
#include "orchmllm/runtime/transport.hpp"

namespace orch::runtime {

struct NcclOptions {
  std::chrono::duration<double> timeout{60};         ///< without any group done
  std::size_t group_bytes = std::size_t{1} << 30U;   ///< most of a group, sends and receives
  std::size_t slice_bytes = std::size_t{64} << 20U;  ///< most of a pair in a group of big pairs
  int max_channels = 0;          ///< NCCL's CTAs, and with them its channels and buffers of each peer; 0: its choice
  bool register_buffers = true;  ///< what allocate() gives
};

/// What NCCL takes of the GPU's memory, as free memory before and after says: other processes of the GPU disturb it.
struct NcclMemory {
  std::uint64_t communicator_bytes = 0;
  std::uint64_t peer_bytes = 0;        ///< by first messages between pairs: transport buffers
  std::uint32_t peers = 0;             ///< that this rank exchanged anything with
  std::uint64_t registered_bytes = 0;  ///< of messages, in use
};

class NcclTransport final : public DeviceAllocator {
 public:
  /// All ranks of the control plane take part, each with the device that its thread has selected. Both outlive this.
  NcclTransport(ControlPlane& control, device::Queue& queue, const NcclOptions& options);
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;
  ~NcclTransport() override;

  [[nodiscard]] std::uint32_t rank() const;
  [[nodiscard]] std::uint32_t ranks() const;
  [[nodiscard]] std::string host() const;

  [[nodiscard]] std::vector<std::string> all_gather(const std::string& what, const std::string& mine);
  /// Runs are device memory.
  void all_to_all(const std::string& what, std::span<const SendRun> sends, std::span<const ReceiveRun> receives);
  void barrier(const std::string& what);
  [[noreturn]] void abort(int exit_code);

  /// Device memory for messages. All of it is released before the transport ends.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* memory) noexcept override;

  [[nodiscard]] NcclMemory memory() const;
  /// "2.28.9"
  [[nodiscard]] std::string version() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

static_assert(Transport<NcclTransport>);

}  // namespace orch::runtime
