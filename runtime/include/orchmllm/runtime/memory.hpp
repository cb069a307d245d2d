// Memory that routes run in: the host's, or a GPU's (device_memory.hpp). The executor is the same on both.
//
//   of           a buffer's memory, large enough; of_messages for what the transport reads and writes
//   copy         one run of bytes from place to place, now or at the next mark or settle; runs of one batch do not
//                overlap and none reads what another of them writes
//   mark         what was copied so far may be sent: the transport reads it from here on
//   reach_mark   waits until it is there
//   settle       waits until everything is done
//   fill, check  payload of many extents (payload.hpp), the same bytes and the same words on every memory
//
// Spans of a GPU's memory are addresses alone: only the memory itself and the transport use them. Units: bytes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "orchmllm/runtime/payload.hpp"

namespace orch::runtime {

/// Field → memory.
using FieldMemory = std::vector<std::span<std::byte>>;
using Found = std::function<void(const Mismatch& mismatch)>;

template <class M>
concept Memory = requires(M memory, typename M::Buffer& buffer, std::size_t bytes, const std::byte* from, std::byte* to,
                          const Origin& origin, std::span<const Extent> extents, const FieldMemory& fields,
                          const std::vector<std::uint64_t>& element_bytes, Verify verify, const Found& found) {
  requires std::default_initializable<typename M::Buffer> && std::movable<typename M::Buffer>;
  { memory.of(buffer, bytes) } -> std::same_as<std::span<std::byte>>;
  { memory.of_messages(buffer, bytes) } -> std::same_as<std::span<std::byte>>;
  memory.copy(from, to, bytes);
  memory.mark();
  memory.reach_mark();
  memory.settle();
  memory.fill(origin, extents, fields);
  { memory.check(origin, extents, fields, element_bytes, verify, found) } -> std::same_as<std::uint64_t>;
};

/// The host's memory: everything is done at once.
class HostMemory {
 public:
  /// Used again and again; its contents are whatever they were.
  class Buffer {
   public:
    [[nodiscard]] std::span<std::byte> of(std::size_t bytes) {
      if (bytes > capacity_) {
        data_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
        capacity_ = bytes;
      }
      return {data_.get(), bytes};
    }

   private:
    std::unique_ptr<std::byte[]> data_;
    std::size_t capacity_ = 0;
  };

  [[nodiscard]] std::span<std::byte> of(Buffer& buffer, std::size_t bytes) const { return buffer.of(bytes); }
  [[nodiscard]] std::span<std::byte> of_messages(Buffer& buffer, std::size_t bytes) const { return buffer.of(bytes); }
  void copy(const std::byte* from, std::byte* to, std::size_t bytes) const { std::memcpy(to, from, bytes); }
  void mark() const {}
  void reach_mark() const {}
  void settle() const {}

  void fill(const Origin& origin, std::span<const Extent> extents, const FieldMemory& fields) const {
    for (const Extent& extent : extents) runtime::fill(origin, extent, fields[extent.field]);
  }

  [[nodiscard]] std::uint64_t check(const Origin& origin, std::span<const Extent> extents, const FieldMemory& fields,
                                    const std::vector<std::uint64_t>& element_bytes, Verify verify,
                                    const Found& found) const {
    std::uint64_t compared = 0;
    for (const Extent& extent : extents) {
      compared += runtime::check(origin, extent, fields[extent.field], element_bytes[extent.field], verify, found);
    }
    return compared;
  }
};

static_assert(Memory<HostMemory>);

}  // namespace orch::runtime
