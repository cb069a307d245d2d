// The little that the runtime asks of a GPU besides kernels: memory, copies, streams, events. No CUDA header is needed
// to include this one; tests stand host memory in for a GPU's.
//
// Everything is about the device that the calling thread has selected. What fails throws DeviceError with CUDA's words.
// Units: bytes, seconds.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "orchmllm/base/error.hpp"

namespace orch::runtime {

class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message) : Error(message, 1) {}
};

namespace device {

/// Devices of this process; 0 where there is none, or none that CUDA can use.
[[nodiscard]] int count();
/// CUDA's words for why there is none.
[[nodiscard]] std::string why_none();
void select(int index);
/// "NVIDIA H100 80GB HBM3, sm_90", and what tells it from others of its host.
[[nodiscard]] std::string name();
[[nodiscard]] std::string bus_id();

struct MemoryInfo {
  std::uint64_t free = 0;
  std::uint64_t total = 0;
};
[[nodiscard]] MemoryInfo memory_info();

[[nodiscard]] std::byte* allocate(std::size_t bytes);
void release(std::byte* memory) noexcept;
/// The host's, which the device reads and writes on its own.
[[nodiscard]] std::byte* allocate_pinned(std::size_t bytes);
void release_pinned(std::byte* memory) noexcept;

/// Memory is not released any more: something that does not end may still use it, and releasing it would wait for that.
void leave_memory() noexcept;
[[nodiscard]] bool memory_is_left() noexcept;

class Event;

/// Work that is done one after the other.
class Stream {
 public:
  Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  /// What is put into the stream from here on begins when the event is there.
  void wait(const Event& event);
  void synchronize();
  /// CUDA's own handle.
  [[nodiscard]] void* native() const { return native_; }

 private:
  void* native_ = nullptr;
};

/// A place in a stream.
class Event {
 public:
  /// `timed`: seconds_since() may be asked.
  explicit Event(bool timed = false);
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  void record(Stream& stream);
  /// Whether the stream has come to it; an event that was never recorded is there.
  [[nodiscard]] bool done() const;
  void synchronize() const;
  /// Both are timed, and must be there.
  [[nodiscard]] double seconds_since(const Event& earlier) const;
  [[nodiscard]] void* native() const { return native_; }

 private:
  void* native_ = nullptr;
};

/// Between memories of the host and the device, whichever; when it returns, pageable memory may be used again.
void copy(std::byte* to, const std::byte* from, std::size_t bytes, Stream& stream);
void clear(std::byte* memory, std::size_t bytes, Stream& stream);

/// The stream in which memory is packed and unpacked, and the event after which messages may be read.
struct Queue {
  Stream stream;
  Event ready;
};

}  // namespace device

}  // namespace orch::runtime
