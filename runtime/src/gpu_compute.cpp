#include "orchmllm/runtime/gpu_compute.hpp"

#include <cublas_v2.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/base/hash.hpp"
#include "orchmllm/runtime/device_memory.hpp"

namespace orch::runtime {

namespace {

constexpr int width = 4096;      // of weights
constexpr int rows = 4096;       // in one product
constexpr int positions = 1024;  // of a head's sequence
constexpr int head_width = 128;
constexpr int heads = 32;  // in one batch
constexpr std::size_t element = 2;

void require(cublasStatus_t code, const char* what) {
  if (code != CUBLAS_STATUS_SUCCESS) throw DeviceError(std::string(what) + ": cuBLAS: " + cublasGetStatusString(code));
}

/// Numbers between −1 and 1: zeros would spare the GPU power, and flatter it.
std::vector<std::uint16_t> any_numbers(std::size_t count) {
  std::vector<std::uint16_t> numbers(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t draw = mix64(i);
    // Sign and fraction at random, exponents from 2⁻⁸ to 2⁻¹.
    numbers[i] = static_cast<std::uint16_t>((draw & 0x807fU) | (119U + (draw >> 32U) % 8U) << 7U);
  }
  return numbers;
}

}  // namespace

struct GpuProducts::State {
  explicit State(device::Queue& work) : queue(work) {
    require(cublasCreate(&handle), "GPU products");
    require(cublasSetStream(handle, static_cast<cudaStream_t>(queue.stream.native())), "GPU products");
    const auto take = [](DeviceBuffer& buffer, std::size_t numbers) {
      return buffer.of(numbers * element, PlainAllocator::instance()).data();
    };
    constexpr std::size_t matrix = std::size_t{width} * width;
    weights = take(memory[0], matrix);
    input = take(memory[1], std::size_t{rows} * width);
    output = take(memory[2], std::size_t{rows} * width);
    queries = take(memory[3], std::size_t{heads} * positions * head_width);
    scores = take(memory[4], std::size_t{heads} * positions * positions);
    const std::vector<std::uint16_t> numbers = any_numbers(matrix);
    const auto upload = [&](std::byte* to, std::size_t count) {
      device::copy(to, reinterpret_cast<const std::byte*>(numbers.data()), count * element, queue.stream);
    };
    upload(weights, matrix);
    upload(input, std::size_t{rows} * width);
    upload(queries, std::size_t{heads} * positions * head_width);
    queue.stream.synchronize();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { static_cast<void>(cublasDestroy(handle)); }

  /// `count` rows by the weights.
  void multiply(int count) {
    const float one = 0.01F;  // outputs become inputs, and must not grow
    const float none = 0;
    require(
        cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, width, count, width, &one, weights, CUDA_R_16BF, width, input,
                     CUDA_R_16BF, width, &none, output, CUDA_R_16BF, width, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "GPU products");
    std::swap(input, output);
  }

  /// `count` positions of each of `batch` heads, against all positions.
  void attend(int count, int batch) {
    const float scale = 0.01F;
    const float none = 0;
    constexpr long long sequence = static_cast<long long>(positions) * head_width;
    constexpr long long square = static_cast<long long>(positions) * positions;
    require(cublasGemmStridedBatchedEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, positions, count, head_width, &scale, queries,
                                       CUDA_R_16BF, head_width, sequence, queries, CUDA_R_16BF, head_width, sequence,
                                       &none, scores, CUDA_R_16BF, positions, square, batch, CUBLAS_COMPUTE_32F,
                                       CUBLAS_GEMM_DEFAULT),
            "GPU attention");
    require(cublasGemmStridedBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, head_width, count, positions, &scale, queries,
                                       CUDA_R_16BF, head_width, sequence, scores, CUDA_R_16BF, positions, square, &none,
                                       output, CUDA_R_16BF, head_width, sequence, batch, CUBLAS_COMPUTE_32F,
                                       CUBLAS_GEMM_DEFAULT),
            "GPU attention");
  }

  device::Queue& queue;
  cublasHandle_t handle = nullptr;
  DeviceBuffer memory[5];
  std::byte* weights = nullptr;
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* queries = nullptr;
  std::byte* scores = nullptr;
};

// The values of a batch of heads go where rows go.
static_assert(static_cast<long long>(heads) * positions * head_width <= static_cast<long long>(rows) * width);

GpuProducts::GpuProducts(device::Queue& queue) : state_(std::make_unique<State>(queue)) {}
GpuProducts::~GpuProducts() = default;

void GpuProducts::run(const PhaseFlops& flops, double scale, bool backward) {
  const double products = flops.products * scale * (backward ? 2 : 1);
  const double attention = flops.attention * scale * (backward ? 2.5 : 1);
  for (auto left = std::llround(products / (2.0 * width * width)); left > 0; left -= rows) {
    state_->multiply(static_cast<int>(std::min<long long>(left, rows)));
  }
  constexpr long long batch = static_cast<long long>(heads) * positions;
  for (auto left = std::llround(attention / (4.0 * positions * head_width)); left > 0;) {
    if (left >= positions) {
      const long long now = std::min(left, batch) / positions;
      state_->attend(positions, static_cast<int>(now));
      left -= now * positions;
    } else {
      state_->attend(static_cast<int>(left), 1);
      left = 0;
    }
  }
  state_->queue.stream.synchronize();
}

}  // namespace orch::runtime
