// Host memory in a GPU's stead: streams do nothing until somebody waits for them, then everything in its order.
//
// So whoever reads what a stream has yet to write, or writes what it has yet to read, finds the wrong bytes here. A
// legal schedule of a real GPU, the slowest one. Threads of one process stand for processes; each selects a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

namespace orch::test::gpu {

/// Guards everything of the doubles.
[[nodiscard]] std::recursive_mutex& mutex();

/// Puts something into a stream (its native handle). `attempt` does it when all before is done; false: not yet.
void enqueue(void* stream, std::function<bool()> attempt);

/// Memory that a library takes of a device, and the number of the calling thread's device.
void take_memory(std::int64_t bytes);
[[nodiscard]] int device_of_thread();

/// Allocations that were not released: of devices and pinned.
[[nodiscard]] std::size_t allocations();
/// Whether a run lies within one allocation.
[[nodiscard]] bool is_device_memory(const void* at, std::size_t bytes);

void set_devices(int count);

/// Releases all that there is, after device::leave_memory(), and says how many allocations that were; from here on
/// memory is released again.
std::size_t take_memory_back();

}  // namespace orch::test::gpu
