// A trainer that exchanges on GPUs: one rank, what it has it keeps. Without a GPU there is nothing to do.
#include <array>
#include <chrono>
#include <cstdio>
#include <orchmllm/runtime/lone_control.hpp>
#include <orchmllm/runtime/nccl_transport.hpp>

int main() {
  using namespace orch::runtime;
  if (device::count() == 0) {
    std::puts("no GPU");
    return 0;
  }
  device::select(0);
  LoneControl control;
  device::Queue queue;
  NcclTransport transport(control, queue, NcclOptions{.timeout = std::chrono::seconds(30)});
  DeviceBuffer buffer;
  const std::span<std::byte> memory = buffer.of(2, transport);
  std::array<std::byte, 2> held{std::byte{7}, std::byte{0}};
  device::copy(memory.data(), held.data(), held.size(), queue.stream);
  queue.ready.record(queue.stream);
  const std::array sends{SendRun{0, 0, memory.first(1)}};
  const std::array receives{ReceiveRun{0, 0, memory.last(1)}};
  transport.all_to_all("to itself", sends, receives);
  device::copy(held.data(), memory.data(), held.size(), queue.stream);
  queue.stream.synchronize();
  std::printf("NCCL %s on %s\n", transport.version().c_str(), device::name().c_str());
  return held[1] == std::byte{7} ? 0 : 1;
}
