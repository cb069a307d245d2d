// Kernels against the host's own copies and payload, on any list of rows: on a GPU, or (in the program test_rows) with
// every block and thread of the kernels run on the host. Without a GPU the tests skip, and say so.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "orchmllm/base/random.hpp"
#include "orchmllm/runtime/device_memory.hpp"

using namespace orch;
using namespace orch::runtime;

namespace {

bool no_device() {
  if (device::count() > 0) return false;
  // Where a GPU is known to be (scripts/gpu_check.sh), not to find it is a failure.
  if (std::getenv("ORCHMLLM_REQUIRE_GPU") != nullptr) FAIL(device::why_none());
  static const bool said = std::fprintf(stderr, "SKIPPED: no CUDA device, kernels are not tested\n") > 0;
  static_cast<void>(said);
  return true;
}

std::uint64_t instances() {
  const char* text = std::getenv("ORCHMLLM_KERNEL_INSTANCES");
  return text == nullptr ? 60 : std::strtoull(text, nullptr, 10);
}

/// Memory of the host and the same on the device.
struct Pair {
  Pair(device::Queue& queue, std::size_t bytes, std::uint64_t seed) : host(bytes) {
    Random random(seed);
    for (std::byte& byte : host) byte = static_cast<std::byte>(random.next() & 0xffU);
    on_device = memory.of(bytes, PlainAllocator::instance());
    device::copy(on_device.data(), host.data(), bytes, queue.stream);
    queue.stream.synchronize();
  }
  [[nodiscard]] std::vector<std::byte> fetch(device::Queue& queue) const {
    std::vector<std::byte> result(host.size());
    device::copy(result.data(), on_device.data(), result.size(), queue.stream);
    queue.stream.synchronize();
    return result;
  }
  std::vector<std::byte> host;
  DeviceBuffer memory;
  std::span<std::byte> on_device;
};

/// Sizes of rows: tiny, of any alignment, whole vectors, a few long ones.
std::size_t any_size(Random& random, std::uint64_t kind) {
  switch (kind) {
    case 0:
      return random.next() % 40;
    case 1:
      return 16 * (random.next() % 40);
    case 2:
      return random.next() % 3000;
    case 3:
      return random.next() % 20 == 0 ? 100'000 + random.next() % 200'000 : random.next() % 64;
    default:
      return 4 * (random.next() % 300);
  }
}

}  // namespace

TEST_CASE("rows of any size and alignment are where the host would have copied them, and nothing else is touched") {
  if (no_device()) return;
  device::select(0);
  device::Queue queue;
  for (std::uint64_t seed = 0; seed < instances(); ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::uint64_t kind = seed % 5;
    const std::size_t count = 1 + random.next() % (kind == 3 ? 60 : 400);
    const std::size_t step = std::array<std::size_t, 4>{1, 2, 4, 16}[random.next() % 4];
    std::vector<std::size_t> sizes(count);
    for (std::size_t& size : sizes) size = any_size(random, kind) / step * step;
    // Rows lie in any order on either side, with gaps that are multiples of the element.
    const auto places = [&] {
      const std::vector<std::uint32_t> order = permutation(static_cast<std::uint32_t>(count), Random(random.next()));
      std::vector<std::size_t> at(count);
      std::size_t next = step * (random.next() % 5);
      for (const std::uint32_t row : order) {
        at[row] = next;
        next += sizes[row] + step * (random.next() % 3);
      }
      return std::pair(at, next);
    };
    const auto [from, from_size] = places();
    const auto [to, to_size] = places();
    Pair source(queue, from_size + 1, seed);
    Pair target(queue, to_size + 1, seed + 1000);
    DeviceMemory memory(queue);
    for (std::size_t row = 0; row < count; ++row) {
      std::copy_n(source.host.data() + from[row], sizes[row], target.host.data() + to[row]);
      memory.copy(source.on_device.data() + from[row], target.on_device.data() + to[row], sizes[row]);
    }
    memory.mark();
    memory.reach_mark();
    CHECK(target.fetch(queue) == target.host);
  }
}

TEST_CASE("payload on the device is that of the host; a flipped byte anywhere is named alike") {
  if (no_device()) return;
  device::select(0);
  device::Queue queue;
  for (std::uint64_t seed = 0; seed < instances(); ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::vector<std::uint64_t> element{2, 4};
    std::vector<Extent> extents;
    std::array<std::size_t, 2> size{};
    for (std::uint32_t i = 0; i < 1 + random.next() % 200; ++i) {
      const auto field = static_cast<std::uint32_t>(random.next() % 2);
      const std::uint64_t bytes = element[field] * (random.next() % (i % 50 == 0 ? 20'000 : 50));
      const std::uint64_t offset = size[field] + element[field] * (random.next() % 3);
      extents.push_back({i, i % 3, field, offset, bytes});
      size[field] = offset + bytes;
    }
    std::array<Pair, 2> fields{Pair(queue, size[0] + 4, seed), Pair(queue, size[1] + 4, seed + 1)};
    const FieldMemory on_host{fields[0].host, fields[1].host};
    const FieldMemory on_device{fields[0].on_device, fields[1].on_device};
    const Origin origin{seed, 3, Direction::backward, 1};
    const HostMemory host;
    DeviceMemory memory(queue);
    host.fill(origin, extents, on_host);
    memory.fill(origin, extents, on_device);
    memory.settle();
    for (const Pair& field : fields) CHECK(field.fetch(queue) == field.host);

    const std::size_t field = random.next() % 2;
    const std::size_t at = random.next() % fields[field].host.size();
    fields[field].host[at] ^= std::byte{8};
    device::copy(fields[field].on_device.data() + at, fields[field].host.data() + at, 1, queue.stream);
    queue.stream.synchronize();
    for (const Verify verify : {Verify::full, Verify::sample, Verify::off}) {
      std::array<std::vector<std::string>, 2> found;
      const auto note = [&](std::size_t side) {
        return [&found, side](const Mismatch& mismatch) {
          found[side].push_back(std::to_string(mismatch.extent.sample) + " at " +
                                std::to_string(mismatch.extent.offset) + ": " + std::to_string(mismatch.element) + " " +
                                mismatch.expected + " " + mismatch.found);
        };
      };
      const std::uint64_t compared = host.check(origin, extents, on_host, element, verify, note(0));
      CHECK(memory.check(origin, extents, on_device, element, verify, note(1)) == compared);
      CHECK(found[1] == found[0]);
      CHECK(found[0].size() <= 1);
    }
  }
}

TEST_CASE("lists travel while earlier ones are in use; staying rows run beside what is awaited") {
  if (no_device()) return;
  device::select(0);
  device::Queue queue;
  Pair a(queue, 100'000, 1);
  Pair b(queue, 100'000, 2);
  DeviceMemory memory(queue);
  for (std::size_t round = 0; round < 50; ++round) {
    for (std::size_t i = 0; i < 100; ++i) {
      const std::size_t at = 1000 * i + 7 * round;
      memory.copy(a.on_device.data() + at, b.on_device.data() + at + 3, 500);
      std::copy_n(a.host.data() + at, 500, b.host.data() + at + 3);
    }
    memory.mark();
    std::swap(a, b);
  }
  memory.settle();
  CHECK(a.fetch(queue) == a.host);
  CHECK(b.fetch(queue) == b.host);
}
