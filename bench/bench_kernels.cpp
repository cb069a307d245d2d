// Bandwidth of packing and unpacking on a GPU, by length of rows, against cudaMemcpy from device to device in the same
// run.
//
//   bench_kernels      (scripts/gpu_check.sh; JSON on standard output)
//
// Rows lie in random order on one side and follow each other on the other. bytes_per_second counts the bytes of rows
// once, as for the copy; ratio: of the copy's of as many bytes. Kernels and copies are timed by events, in turn;
// medians of 21. The list of rows lies on the device; `list_seconds` is what making it and its way there take with the
// kernel, as the executor does it. Exits with 2 without a device. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "median.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/runtime/device_memory.hpp"

namespace {

using namespace orch;
using namespace orch::runtime;
using bench::median;

constexpr int repetitions = 21;
constexpr std::size_t most_bytes = std::size_t{1} << 30U;
constexpr std::size_t most_rows = std::size_t{1} << 22U;

/// Seconds of what `begin()` puts into the stream.
template <class Begin>
double timed(device::Queue& queue, Begin&& begin) {
  device::Event before(true);
  device::Event after(true);
  before.record(queue.stream);
  begin();
  after.record(queue.stream);
  after.synchronize();
  return after.seconds_since(before);
}

struct Result {
  std::size_t length = 0;
  std::size_t bytes = 0;
  double pack = 0, unpack = 0, copy = 0, list = 0;  ///< seconds
};

Result measure(device::Queue& queue, std::size_t length, std::byte* a, std::byte* b) {
  const std::size_t count = std::min(most_rows, most_bytes / length);
  const std::vector<std::uint32_t> order = permutation(static_cast<std::uint32_t>(count), Random(length));
  Work<Row> pack;
  Work<Row> unpack;
  for (std::size_t i = 0; i < count; ++i) {
    pack.add({a + order[i] * length, b + i * length, length, 0});
    unpack.add({a + i * length, b + order[i] * length, length, 0});
  }
  DeviceBuffer lists[2];
  const auto upload = [&](Work<Row>& work, DeviceBuffer& buffer) {
    const std::uint32_t blocks = work.blocks();
    work.close();
    const std::size_t entries = work.entries.size() * sizeof(Row);
    const std::size_t firsts = work.first_entry.size() * sizeof(std::uint32_t);
    std::byte* to = buffer.of(entries + firsts, PlainAllocator::instance()).data();
    device::copy(to, reinterpret_cast<const std::byte*>(work.entries.data()), entries, queue.stream);
    device::copy(to + entries, reinterpret_cast<const std::byte*>(work.first_entry.data()), firsts, queue.stream);
    queue.stream.synchronize();
    return WorkView<Row>{reinterpret_cast<const Row*>(to), reinterpret_cast<const std::uint32_t*>(to + entries),
                         work.units, blocks};
  };
  const WorkView<Row> pack_view = upload(pack, lists[0]);
  const WorkView<Row> unpack_view = upload(unpack, lists[1]);
  const std::size_t bytes = count * length;
  std::vector<double> packs, unpacks, copies, list_times;
  DeviceMemory memory(queue);
  for (int repetition = -3; repetition < repetitions; ++repetition) {  // three to warm up
    const double packed = timed(queue, [&] { device::copy_rows(pack_view, queue.stream); });
    const double unpacked = timed(queue, [&] { device::copy_rows(unpack_view, queue.stream); });
    const double copied = timed(queue, [&] { device::copy(b, a, bytes, queue.stream); });
    const auto begin = std::chrono::steady_clock::now();
    for (const Row& row : pack.entries) memory.copy(row.source, row.target, row.bytes);
    memory.settle();
    const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (repetition < 0) continue;
    packs.push_back(packed);
    unpacks.push_back(unpacked);
    copies.push_back(copied);
    list_times.push_back(whole);
  }
  return {length, bytes, median(packs), median(unpacks), median(copies), median(list_times)};
}

void run() {
  device::select(0);
  device::Queue queue;
  DeviceBuffer a;
  DeviceBuffer b;
  std::byte* from = a.of(most_bytes, PlainAllocator::instance()).data();
  std::byte* to = b.of(most_bytes, PlainAllocator::instance()).data();
  device::clear(from, most_bytes, queue.stream);
  device::clear(to, most_bytes, queue.stream);
  std::printf("{\"device\": \"%s\", \"rows\": [", device::name().c_str());
  for (std::size_t length = 64; length <= std::size_t{1} << 20U; length *= 4) {
    // Two lengths that are no multiple of 16 stand for elements of two bytes in rows of any number.
    for (const std::size_t bytes : {length, length + 2}) {
      if (bytes != length && length != 1024 && length != 16384) continue;
      const Result r = measure(queue, bytes, from, to);
      const auto rate = [&](double seconds) { return static_cast<double>(r.bytes) / seconds; };
      std::printf(
          "%s\n {\"row_bytes\": %zu, \"bytes\": %zu, \"pack_bytes_per_second\": %.4g, "
          "\"unpack_bytes_per_second\": %.4g, \"copy_bytes_per_second\": %.4g, \"pack_ratio\": %.4g, "
          "\"unpack_ratio\": %.4g, \"list_seconds\": %.4g}",
          length == 64 ? "" : ",", r.length, r.bytes, rate(r.pack), rate(r.unpack), rate(r.copy), r.copy / r.pack,
          r.copy / r.unpack, r.list);
      std::fflush(stdout);
    }
  }
  std::printf("\n]}\n");
}

}  // namespace

int main() {
  try {
    if (device::count() == 0) {
      std::cerr << "bench_kernels: " << device::why_none() << "\n";
      return 2;
    }
    run();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "bench_kernels: " << error.what() << "\n";
    return 1;
  }
}
