// The executor's memory on a GPU: copies of a batch are one kernel, payload is written and checked where it lies.
//
// Copies are collected until mark(), settle() or fill(), then go into the queue's stream as one launch. Lists travel
// through pinned memory, a few of them under way at a time. What a check finds wrong is brought to the host extent by
// extent and named there by the same code as on the host. Used by one thread. Complexity: O(items) on the host.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "orchmllm/runtime/device.hpp"
#include "orchmllm/runtime/kernels.hpp"
#include "orchmllm/runtime/memory.hpp"

namespace orch::runtime {

/// Where memory comes from. A transport may have its own for what it sends and receives.
class DeviceAllocator {
 public:
  virtual ~DeviceAllocator() = default;
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* memory) noexcept = 0;
};

/// cudaMalloc.
class PlainAllocator final : public DeviceAllocator {
 public:
  [[nodiscard]] std::byte* allocate(std::size_t bytes) override { return device::allocate(bytes); }
  void release(std::byte* memory) noexcept override { device::release(memory); }
  [[nodiscard]] static PlainAllocator& instance() {
    static PlainAllocator allocator;
    return allocator;
  }
};

/// Device memory that grows, by a quarter more than is asked for: registering and freeing take long, and steps differ.
/// Its contents are whatever they were.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : allocator_(other.allocator_),
        data_(std::exchange(other.data_, nullptr)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(allocator_, other.allocator_);
    std::swap(data_, other.data_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~DeviceBuffer() { free(); }

  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  /// Before the memory is replaced, nothing on the device may use it any more.
  [[nodiscard]] std::span<std::byte> of(std::size_t bytes, DeviceAllocator& allocator) {
    if (bytes > capacity_) {
      free();
      allocator_ = &allocator;
      constexpr std::size_t page = std::size_t{2} << 20U;
      const std::size_t room = bytes < page ? bytes : (bytes + bytes / 4 + page - 1) / page * page;
      try {
        data_ = allocator.allocate(room);
        capacity_ = room;
      } catch (const DeviceError&) {  // perhaps it just fits
        data_ = allocator.allocate(bytes);
        capacity_ = bytes;
      }
    }
    return {data_, bytes};
  }

 private:
  void free() noexcept {
    if (data_ != nullptr) allocator_->release(data_);
    data_ = nullptr;
    capacity_ = 0;
  }

  DeviceAllocator* allocator_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t capacity_ = 0;
};

class DeviceMemory {
 public:
  using Buffer = DeviceBuffer;

  /// Both outlive this memory and all its buffers.
  explicit DeviceMemory(device::Queue& queue, DeviceAllocator& messages = PlainAllocator::instance())
      : queue_(&queue), messages_(&messages), lists_(std::make_unique<Lists>()) {}

  [[nodiscard]] std::span<std::byte> of(Buffer& buffer, std::size_t bytes) {
    return of(buffer, bytes, PlainAllocator::instance());
  }
  [[nodiscard]] std::span<std::byte> of_messages(Buffer& buffer, std::size_t bytes) {
    return of(buffer, bytes, *messages_);
  }

  void copy(const std::byte* from, std::byte* to, std::size_t bytes) {
    if (bytes > 0) rows_.add({from, to, bytes, 0});
  }

  void mark() {
    flush();
    queue_->ready.record(queue_->stream);
  }

  void reach_mark() {
    flush();  // what was copied since begins, and is not waited for
    queue_->ready.synchronize();
  }

  void settle() {
    flush();
    queue_->stream.synchronize();
  }

  void fill(const Origin& origin, std::span<const Extent> extents, const FieldMemory& fields) {
    flush();
    static_cast<void>(list_payload(origin, extents, fields, Words::all));
    if (payload_.entries.empty()) return;
    device::fill_payload(upload(payload_), queue_->stream);
    payload_.clear();
  }

  [[nodiscard]] std::uint64_t check(const Origin& origin, std::span<const Extent> extents, const FieldMemory& fields,
                                    const std::vector<std::uint64_t>& element_bytes, Verify verify,
                                    const Found& found) {
    flush();
    if (verify == Verify::off) return 0;
    const Words words = verify == Verify::sample ? Words::sampled : Words::all;
    const std::uint64_t compared = list_payload(origin, extents, fields, words);
    if (payload_.entries.empty()) return compared;
    const std::size_t count = payload_.entries.size();
    const std::span<std::byte> flags = flags_.of(count * sizeof(std::uint32_t), PlainAllocator::instance());
    device::clear(flags.data(), flags.size(), queue_->stream);
    device::check_payload(upload(payload_), words, reinterpret_cast<std::uint32_t*>(flags.data()), queue_->stream);
    std::vector<std::uint32_t> wrong(count);
    download(reinterpret_cast<std::byte*>(wrong.data()), flags);
    payload_.clear();
    std::size_t next = 0;
    for (const Extent& extent : extents) {
      if (extent.bytes == 0 || wrong[next++] == 0) continue;
      std::vector<std::byte> held(extent.bytes);
      download(held.data(), fields[extent.field].subspan(extent.offset, extent.bytes));
      Extent here = extent;
      here.offset = 0;
      static_cast<void>(runtime::check(origin, here, held, element_bytes[extent.field], verify, [&](Mismatch mismatch) {
        mismatch.extent = extent;
        found(mismatch);
      }));
    }
    return compared;
  }

 private:
  /// A list under way: pinned, and on the device.
  struct Slot {
    Slot() = default;
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    ~Slot() { resize(0); }

    void resize(std::size_t bytes) {
      if (pinned != nullptr) device::release_pinned(pinned);
      if (data != nullptr) device::release(data);
      pinned = data = nullptr;
      capacity = 0;
      if (bytes == 0) return;
      pinned = device::allocate_pinned(bytes);
      data = device::allocate(bytes);
      capacity = bytes;
    }

    std::byte* pinned = nullptr;
    std::byte* data = nullptr;
    std::size_t capacity = 0;
    device::Event used;  ///< behind the kernel that reads the list
  };
  struct Lists {
    std::array<Slot, 4> slots;
    std::size_t next = 0;
    Slot* last = nullptr;
  };

  [[nodiscard]] std::span<std::byte> of(Buffer& buffer, std::size_t bytes, DeviceAllocator& allocator) {
    if (bytes > buffer.capacity()) settle();
    return buffer.of(bytes, allocator);
  }

  void flush() {
    if (rows_.entries.empty()) return;
    device::copy_rows(upload(rows_), queue_->stream);
    rows_.clear();
  }

  /// The list on the device, for the next kernel of the stream alone.
  template <class Entry>
  [[nodiscard]] WorkView<Entry> upload(Work<Entry>& work) {
    if (lists_->last != nullptr) lists_->last->used.record(queue_->stream);
    Slot& slot = lists_->slots[lists_->next];
    lists_->next = (lists_->next + 1) % lists_->slots.size();
    lists_->last = &slot;
    const std::uint32_t blocks = work.blocks();
    work.close();
    const std::size_t entries = work.entries.size() * sizeof(Entry);
    const std::size_t bytes = entries + work.first_entry.size() * sizeof(std::uint32_t);
    slot.used.synchronize();
    if (bytes > slot.capacity) slot.resize(bytes + bytes / 2);
    std::memcpy(slot.pinned, work.entries.data(), entries);
    std::memcpy(slot.pinned + entries, work.first_entry.data(), bytes - entries);
    device::copy(slot.data, slot.pinned, bytes, queue_->stream);
    return {reinterpret_cast<const Entry*>(slot.data), reinterpret_cast<const std::uint32_t*>(slot.data + entries),
            work.units, blocks};
  }

  void download(std::byte* to, std::span<const std::byte> from) {
    device::copy(to, from.data(), from.size(), queue_->stream);
    queue_->stream.synchronize();
  }

  /// Bytes that a check of these words compares.
  std::uint64_t list_payload(const Origin& origin, std::span<const Extent> extents, const FieldMemory& fields,
                             Words words) {
    std::uint64_t compared = 0;
    for (const Extent& extent : extents) {
      if (extent.bytes == 0) continue;
      const PayloadRow row{fields[extent.field].data() + extent.offset, extent.bytes, origin.key(extent), 0};
      payload_.add(row, words);
      const std::uint64_t units = detail::units_of(row, words);
      // All words but the last one of an extent are whole.
      compared += words == Words::all ? extent.bytes : 8 * (units - 1) + (extent.bytes - 1) % 8 + 1;
    }
    return compared;
  }

  device::Queue* queue_;
  DeviceAllocator* messages_;
  Work<Row> rows_;
  Work<PayloadRow> payload_;
  DeviceBuffer flags_;
  std::unique_ptr<Lists> lists_;
};

static_assert(Memory<DeviceMemory>);

}  // namespace orch::runtime
