#include "orchmllm/runtime/device.hpp"

#include <cuda_runtime.h>

#include <array>
#include <atomic>

namespace orch::runtime::device {

namespace {

void require(cudaError_t code, const std::string& what) {
  if (code != cudaSuccess) throw DeviceError(what + ": " + cudaGetErrorString(code));
}

cudaStream_t native(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }
cudaEvent_t native(const Event& event) { return static_cast<cudaEvent_t>(event.native()); }

std::atomic<bool> left{false};

std::string bytes_of_text(const char* what, std::size_t bytes) {
  return std::string(what) + " of " + std::to_string(bytes) + " bytes";
}

}  // namespace

int count() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess) return devices;
  static_cast<void>(cudaGetLastError());  // asked and answered: not an error of the next call
  return 0;
}

std::string why_none() {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  static_cast<void>(cudaGetLastError());
  return code == cudaSuccess ? "no CUDA device" : cudaGetErrorString(code);
}

void select(int index) { require(cudaSetDevice(index), "selecting GPU " + std::to_string(index)); }

std::string name() {
  int index = 0;
  require(cudaGetDevice(&index), "GPU");
  cudaDeviceProp properties;
  require(cudaGetDeviceProperties(&properties, index), "properties of GPU " + std::to_string(index));
  return std::string(properties.name) + ", sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
}

std::string bus_id() {
  int index = 0;
  require(cudaGetDevice(&index), "GPU");
  std::array<char, 64> text{};
  require(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), index),
          "place of GPU " + std::to_string(index));
  return text.data();
}

MemoryInfo memory_info() {
  std::size_t free = 0;
  std::size_t total = 0;
  require(cudaMemGetInfo(&free, &total), "GPU memory");
  return {free, total};
}

std::byte* allocate(std::size_t bytes) {
  void* memory = nullptr;
  require(cudaMalloc(&memory, bytes), bytes_of_text("GPU memory", bytes));
  return static_cast<std::byte*>(memory);
}

void release(std::byte* memory) noexcept {
  if (!left) static_cast<void>(cudaFree(memory));
}

std::byte* allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  require(cudaMallocHost(&memory, bytes), bytes_of_text("pinned memory", bytes));
  return static_cast<std::byte*>(memory);
}

void release_pinned(std::byte* memory) noexcept {
  if (!left) static_cast<void>(cudaFreeHost(memory));
}

void leave_memory() noexcept { left = true; }
bool memory_is_left() noexcept { return left; }

Stream::Stream() {
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "GPU stream");
  native_ = stream;
}

Stream::~Stream() { static_cast<void>(cudaStreamDestroy(runtime::device::native(*this))); }

void Stream::wait(const Event& event) {
  require(cudaStreamWaitEvent(runtime::device::native(*this), runtime::device::native(event), 0), "GPU event");
}

void Stream::synchronize() { require(cudaStreamSynchronize(runtime::device::native(*this)), "GPU stream"); }

Event::Event(bool timed) {
  cudaEvent_t event = nullptr;
  require(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming), "GPU event");
  native_ = event;
}

Event::~Event() { static_cast<void>(cudaEventDestroy(runtime::device::native(*this))); }

void Event::record(Stream& stream) {
  require(cudaEventRecord(runtime::device::native(*this), runtime::device::native(stream)), "GPU event");
}

bool Event::done() const {
  const cudaError_t code = cudaEventQuery(runtime::device::native(*this));
  if (code == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // an answer, not an error of the next launch
    return false;
  }
  require(code, "GPU event");
  return true;
}

void Event::synchronize() const { require(cudaEventSynchronize(runtime::device::native(*this)), "GPU event"); }

double Event::seconds_since(const Event& earlier) const {
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, runtime::device::native(earlier), runtime::device::native(*this)),
          "GPU event");
  return 1e-3 * static_cast<double>(milliseconds);
}

void copy(std::byte* to, const std::byte* from, std::size_t bytes, Stream& stream) {
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)), bytes_of_text("copy", bytes));
}

void clear(std::byte* memory, std::size_t bytes, Stream& stream) {
  require(cudaMemsetAsync(memory, 0, bytes, native(stream)), bytes_of_text("clearing", bytes));
}

}  // namespace orch::runtime::device
