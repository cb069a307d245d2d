#include "orchmllm/runtime/gpu_compute.hpp"

#include <cublas_v2.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "orchmllm/base/hash.hpp"
#include "orchmllm/runtime/device_memory.hpp"

namespace orch::runtime {

namespace {

constexpr std::size_t element = 2;
constexpr float scale = 0.01F;
constexpr float none = 0;

void require(cublasStatus_t code, const char* what) {
  if (code != CUBLAS_STATUS_SUCCESS) throw DeviceError(std::string(what) + ": cuBLAS: " + cublasGetStatusString(code));
}

/// cuBLAS in a queue.
class Library {
 public:
  explicit Library(device::Queue& queue) : queue_(queue) {
    require(cublasCreate(&handle_), "GPU products");
    require(cublasSetStream(handle_, static_cast<cudaStream_t>(queue.stream.native())), "GPU products");
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() { static_cast<void>(cublasDestroy(handle_)); }

  [[nodiscard]] cublasHandle_t handle() const { return handle_; }
  void wait() { queue_.stream.synchronize(); }

  /// Room for numbers between −1 and 1: zeros would spare the GPU power, and flatter it.
  [[nodiscard]] DeviceBuffer numbers(std::size_t count) {
    std::vector<std::uint16_t> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t draw = mix64(i);
      // Sign and fraction at random, exponents from 2⁻⁸ to 2⁻¹.
      values[i] = static_cast<std::uint16_t>((draw & 0x807fU) | (119U + (draw >> 32U) % 8U) << 7U);
    }
    DeviceBuffer buffer;
    std::byte* to = buffer.of(count * element, PlainAllocator::instance()).data();
    device::copy(to, reinterpret_cast<const std::byte*>(values.data()), count * element, queue_.stream);
    wait();
    return buffer;
  }

 private:
  device::Queue& queue_;
  cublasHandle_t handle_ = nullptr;
};

std::byte* data(DeviceBuffer& buffer) { return buffer.of(0, PlainAllocator::instance()).data(); }

}  // namespace

struct GpuProducts::State {
  State(device::Queue& queue, std::size_t given_width)
      : library(queue),
        width(static_cast<int>(given_width)),
        weights(library.numbers(given_width * given_width)),
        input(library.numbers(rows * given_width)),
        output(library.numbers(rows * given_width)) {}

  /// `count` rows by the weights.
  void multiply(int count) {
    require(cublasGemmEx(library.handle(), CUBLAS_OP_N, CUBLAS_OP_N, width, count, width, &scale, data(weights),
                         CUDA_R_16BF, width, data(input), CUDA_R_16BF, width, &none, data(output), CUDA_R_16BF, width,
                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "GPU products");
  }

  Library library;
  int width;
  DeviceBuffer weights, input, output;
};

GpuProducts::GpuProducts(device::Queue& queue, std::size_t width_of_matrix)
    : state_(std::make_unique<State>(queue, width_of_matrix)) {}
GpuProducts::~GpuProducts() = default;

void GpuProducts::run(double flops) {
  const double row_flops = 2.0 * state_->width * state_->width;
  for (auto left = std::llround(flops / row_flops); left > 0; left -= rows) {
    state_->multiply(static_cast<int>(std::min<long long>(left, rows)));
  }
  state_->library.wait();
}

struct GpuAttention::State {
  State(device::Queue& queue, std::size_t given_length, bool given_causal)
      : library(queue),
        length(static_cast<int>(given_length)),
        causal(given_causal),
        heads(
            static_cast<int>(std::clamp<std::size_t>((std::size_t{1} << 25U) / (given_length * given_length), 1, 64))),
        queries(library.numbers(head_numbers())),
        values(library.numbers(head_numbers())),
        scores(library.numbers(static_cast<std::size_t>(heads) * given_length * given_length)) {}

  [[nodiscard]] std::size_t head_numbers() const {
    return static_cast<std::size_t>(heads) * static_cast<std::size_t>(length) * head_dim;
  }
  [[nodiscard]] int block() const { return causal ? std::min(512, length) : length; }

  /// `count` positions from `first` on of each of `batch` heads, against all that they see.
  void attend(int first, int count, int batch) {
    constexpr int dim = head_dim;
    const int seen = causal ? first + count : length;
    const long long sequence = static_cast<long long>(length) * dim;
    const long long square = static_cast<long long>(length) * length;
    const std::size_t offset = static_cast<std::size_t>(first) * dim * element;
    require(cublasGemmStridedBatchedEx(library.handle(), CUBLAS_OP_T, CUBLAS_OP_N, seen, count, dim, &scale,
                                       data(queries), CUDA_R_16BF, dim, sequence, data(queries) + offset, CUDA_R_16BF,
                                       dim, sequence, &none, data(scores), CUDA_R_16BF, length, square, batch,
                                       CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "GPU attention");
    require(cublasGemmStridedBatchedEx(library.handle(), CUBLAS_OP_N, CUBLAS_OP_N, dim, count, seen, &scale,
                                       data(queries), CUDA_R_16BF, dim, sequence, data(scores), CUDA_R_16BF, length,
                                       square, &none, data(values) + offset, CUDA_R_16BF, dim, sequence, batch,
                                       CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "GPU attention");
  }

  Library library;
  int length;
  bool causal;
  int heads;
  int next = 0;  ///< position, of a head by itself
  DeviceBuffer queries, values, scores;
};

GpuAttention::GpuAttention(device::Queue& queue, std::size_t positions, bool causal)
    : state_(std::make_unique<State>(queue, positions, causal)) {}
GpuAttention::~GpuAttention() = default;

void GpuAttention::run(double flops, bool backward) {
  State& s = *state_;
  const double row_flops = forward_flops(static_cast<std::size_t>(s.length), s.causal) / s.length;
  for (auto left = std::llround(flops * (backward ? 2.5 : 1) / row_flops); left > 0;) {
    const auto batch = static_cast<int>(std::min<long long>(left / s.length, s.heads));
    if (batch > 0) {
      for (int first = 0; first < s.length; first += s.block()) {
        s.attend(first, std::min(s.block(), s.length - first), batch);
      }
      left -= static_cast<long long>(batch) * s.length;
    } else {
      const auto count = static_cast<int>(std::min<long long>(left, std::min(s.block(), s.length - s.next)));
      s.attend(s.next, count, 1);
      s.next = (s.next + count) % s.length;
      left -= count;
    }
  }
  s.library.wait();
}

}  // namespace orch::runtime
