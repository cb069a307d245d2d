#include "device_double.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "orchmllm/runtime/device.hpp"
#include "orchmllm/runtime/kernels.hpp"

namespace orch::test::gpu {

namespace {

struct Queue {
  std::deque<std::function<bool()>> items;
  std::uint64_t put = 0;
  std::uint64_t done = 0;
};

/// An event's place, which outlives the event.
struct Place {
  std::shared_ptr<Queue> queue;
  std::uint64_t number = 0;
};

struct Allocation {
  std::size_t bytes = 0;
  bool pinned = false;
  int device = 0;
};

std::map<std::uintptr_t, Allocation>& memory() {
  static std::map<std::uintptr_t, Allocation> allocations;
  return allocations;
}

std::map<int, std::int64_t>& used() {
  static std::map<int, std::int64_t> bytes;
  return bytes;
}

int devices = 1024;
std::atomic<bool> left{false};
thread_local int selected = 0;

std::shared_ptr<Queue>& queue_of(void* stream) { return *static_cast<std::shared_ptr<Queue>*>(stream); }

/// Does what can be done.
void advance(Queue& queue) {
  while (!queue.items.empty()) {
    const std::function<bool()> attempt = queue.items.front();
    if (!attempt()) return;
    queue.items.pop_front();
    ++queue.done;
  }
}

bool is_there(const Place& place) {
  if (!place.queue) return true;
  advance(*place.queue);
  return place.queue->done >= place.number;
}

const Allocation* find(const void* at, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  auto found = memory().upper_bound(address);
  if (found == memory().begin()) return nullptr;
  --found;
  return address + bytes <= found->first + found->second.bytes ? &found->second : nullptr;
}

std::byte* take(std::size_t bytes, bool pinned) {
  const std::scoped_lock lock(mutex());
  auto* data = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  std::memset(data, 0xa5, bytes);  // nobody may count on zeros
  memory()[reinterpret_cast<std::uintptr_t>(data)] = {bytes, pinned, selected};
  if (!pinned) used()[selected] += static_cast<std::int64_t>(bytes);
  return data;
}

void give_back(std::byte* data) {
  if (left) return;
  const std::scoped_lock lock(mutex());
  const auto found = memory().find(reinterpret_cast<std::uintptr_t>(data));
  if (found == memory().end()) std::abort();
  if (!found->second.pinned) used()[found->second.device] -= static_cast<std::int64_t>(found->second.bytes);
  memory().erase(found);
  std::free(data);
}

/// Every block and thread of a kernel, one after the other.
template <class Entry, class Body>
void run_blocks(const runtime::WorkView<Entry>& work, Body&& body) {
  std::vector<std::uint32_t> starts;
  for (std::uint32_t block = 0; block < work.blocks; ++block) {
    const std::uint32_t count = work.first_entry[block + 1] - work.first_entry[block] + 1;
    if (count > runtime::block_units + 1) std::abort();  // the kernels' shared memory is no larger
    starts.resize(count);
    for (std::uint32_t entry = 0; entry < count; ++entry) starts[entry] = start_in_block(work, block, entry);
    for (std::uint32_t thread = 0; thread < runtime::block_threads; ++thread) body(block, starts.data(), thread);
  }
}

}  // namespace

std::recursive_mutex& mutex() {
  static std::recursive_mutex guard;
  return guard;
}

void enqueue(void* stream, std::function<bool()> attempt) {
  const std::scoped_lock lock(mutex());
  Queue& queue = *queue_of(stream);
  queue.items.push_back(std::move(attempt));
  ++queue.put;
}

void take_memory(std::int64_t bytes) {
  const std::scoped_lock lock(mutex());
  used()[selected] += bytes;
}

int device_of_thread() { return selected; }

std::size_t allocations() {
  const std::scoped_lock lock(mutex());
  return memory().size();
}

bool is_device_memory(const void* at, std::size_t bytes) {
  const std::scoped_lock lock(mutex());
  const Allocation* allocation = find(at, bytes);
  return allocation != nullptr && !allocation->pinned;
}

void set_devices(int count) { devices = count; }

std::size_t take_memory_back() {
  const std::scoped_lock lock(mutex());
  left = false;
  const std::size_t count = memory().size();
  while (!memory().empty()) give_back(reinterpret_cast<std::byte*>(memory().begin()->first));
  return count;
}

}  // namespace orch::test::gpu

namespace orch::runtime::device {

namespace gpu = test::gpu;

int count() { return gpu::devices; }
std::string why_none() { return "no device of the double"; }
void select(int index) { gpu::selected = index; }
std::string name() { return "host memory, sm_0"; }
std::string bus_id() { return "bus " + std::to_string(gpu::selected); }

MemoryInfo memory_info() {
  const std::scoped_lock lock(gpu::mutex());
  constexpr std::int64_t total = std::int64_t{1} << 40U;
  return {static_cast<std::uint64_t>(total - gpu::used()[gpu::selected]), static_cast<std::uint64_t>(total)};
}

std::byte* allocate(std::size_t bytes) { return gpu::take(bytes, false); }
void release(std::byte* memory) noexcept { gpu::give_back(memory); }
std::byte* allocate_pinned(std::size_t bytes) { return gpu::take(bytes, true); }
void release_pinned(std::byte* memory) noexcept { gpu::give_back(memory); }
void leave_memory() noexcept { gpu::left = true; }
bool memory_is_left() noexcept { return gpu::left; }

Stream::Stream() : native_(new std::shared_ptr<gpu::Queue>(std::make_shared<gpu::Queue>())) {}
Stream::~Stream() { delete static_cast<std::shared_ptr<gpu::Queue>*>(native_); }

void Stream::wait(const Event& event) {
  const gpu::Place place = *static_cast<const gpu::Place*>(event.native());
  gpu::enqueue(native_, [place] { return gpu::is_there(place); });
}

void Stream::synchronize() {
  const std::scoped_lock lock(gpu::mutex());
  gpu::advance(*gpu::queue_of(native_));
  // Nobody waits for messages this way: they might never come.
  if (!gpu::queue_of(native_)->items.empty()) throw DeviceError("a stream with messages was waited for without bound");
}

Event::Event(bool) : native_(new gpu::Place()) {}
Event::~Event() { delete static_cast<gpu::Place*>(native_); }

void Event::record(Stream& stream) {
  const std::scoped_lock lock(gpu::mutex());
  const std::shared_ptr<gpu::Queue>& queue = gpu::queue_of(stream.native());
  *static_cast<gpu::Place*>(native_) = {queue, queue->put};
}

bool Event::done() const {
  const std::scoped_lock lock(gpu::mutex());
  return gpu::is_there(*static_cast<const gpu::Place*>(native_));
}

void Event::synchronize() const {
  if (!done()) throw DeviceError("an event behind messages was waited for without bound");
}

double Event::seconds_since(const Event&) const { return 0; }

void copy(std::byte* to, const std::byte* from, std::size_t bytes, Stream& stream) {
  const std::scoped_lock lock(gpu::mutex());
  const bool pageable = gpu::find(to, bytes) == nullptr || gpu::find(from, bytes) == nullptr;
  if (pageable) stream.synchronize();
  const auto now = [to, from, bytes] {
    std::memcpy(to, from, bytes);
    return true;
  };
  if (pageable) {
    now();
  } else {
    gpu::enqueue(stream.native(), now);
  }
}

void clear(std::byte* memory, std::size_t bytes, Stream& stream) {
  gpu::enqueue(stream.native(), [memory, bytes] {
    std::memset(memory, 0, bytes);
    return true;
  });
}

void copy_rows(const WorkView<Row>& work, Stream& stream) {
  gpu::enqueue(stream.native(), [work] {
    gpu::run_blocks(work, [&](std::uint32_t block, const std::uint32_t* starts, std::uint32_t thread) {
      if (const Row* row = only_row(work, block)) {
        copy_within_row(*row, units_of_block(work, block), thread);
      } else {
        copy_units(work, block, starts, thread);
      }
    });
    return true;
  });
}

void fill_payload(const WorkView<PayloadRow>& work, Stream& stream) {
  gpu::enqueue(stream.native(), [work] {
    gpu::run_blocks(work, [&](std::uint32_t block, const std::uint32_t* starts, std::uint32_t thread) {
      each_word(
          work, Words::all, block, starts, thread,
          [](std::uint32_t, std::byte* at, std::uint32_t bytes, std::uint64_t word) { store_word(word, at, bytes); });
    });
    return true;
  });
}

void check_payload(const WorkView<PayloadRow>& work, Words words, std::uint32_t* wrong, Stream& stream) {
  gpu::enqueue(stream.native(), [work, words, wrong] {
    gpu::run_blocks(work, [&](std::uint32_t block, const std::uint32_t* starts, std::uint32_t thread) {
      each_word(work, words, block, starts, thread,
                [wrong](std::uint32_t entry, const std::byte* at, std::uint32_t bytes, std::uint64_t word) {
                  if (!holds_word(word, at, bytes)) wrong[entry] = 1;
                });
    });
    return true;
  });
}

}  // namespace orch::runtime::device
