// SPDX-License-Identifier: Apache-2.0
#include "orchmllm/runtime/kernels.hpp"

#include <cuda_runtime.h>

#include <string>

namespace orch::runtime::device {

namespace {

cudaStream_t native(Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

void require_launched(const char* what) {
  const cudaError_t code = cudaGetLastError();
  if (code != cudaSuccess) throw DeviceError(std::string(what) + ": " + cudaGetErrorString(code));
}

/// The starts of a block's entries into memory that its threads share: they search them.
template <class Entry>
__device__ void load_starts(const WorkView<Entry>& work, std::uint32_t* starts) {
  const std::uint32_t count = work.first_entry[blockIdx.x + 1] - work.first_entry[blockIdx.x] + 1;
  for (std::uint32_t entry = threadIdx.x; entry < count; entry += block_threads) {
    starts[entry] = start_in_block(work, blockIdx.x, entry);
  }
  __syncthreads();
}

// A block's entries, of a unit at least each, and the first one of the next block.
#define ORCHMLLM_STARTS __shared__ std::uint32_t starts[block_units + 1]

__global__ void __launch_bounds__(block_threads, 4) copy_rows_kernel(const WorkView<Row> work) {
  if (const Row* row = only_row(work, blockIdx.x)) {
    copy_within_row(*row, units_of_block(work, blockIdx.x), threadIdx.x);
    return;
  }
  ORCHMLLM_STARTS;
  load_starts(work, starts);
  copy_units(work, blockIdx.x, starts, threadIdx.x);
}

__global__ void __launch_bounds__(block_threads) fill_kernel(const WorkView<PayloadRow> work) {
  ORCHMLLM_STARTS;
  load_starts(work, starts);
  each_word(work, Words::all, blockIdx.x, starts, threadIdx.x,
            [](std::uint32_t, std::byte* at, std::uint32_t bytes, std::uint64_t word) { store_word(word, at, bytes); });
}

__global__ void __launch_bounds__(block_threads)
    check_kernel(const WorkView<PayloadRow> work, const Words words, std::uint32_t* wrong) {
  ORCHMLLM_STARTS;
  load_starts(work, starts);
  each_word(work, words, blockIdx.x, starts, threadIdx.x,
            [wrong](std::uint32_t entry, const std::byte* at, std::uint32_t bytes, std::uint64_t word) {
              if (!holds_word(word, at, bytes)) wrong[entry] = 1;  // whoever finds one writes the same
            });
}

}  // namespace

void copy_rows(const WorkView<Row>& work, Stream& stream) {
  copy_rows_kernel<<<work.blocks, block_threads, 0, native(stream)>>>(work);
  require_launched("copying rows");
}

void fill_payload(const WorkView<PayloadRow>& work, Stream& stream) {
  fill_kernel<<<work.blocks, block_threads, 0, native(stream)>>>(work);
  require_launched("writing payload");
}

void check_payload(const WorkView<PayloadRow>& work, Words words, std::uint32_t* wrong, Stream& stream) {
  check_kernel<<<work.blocks, block_threads, 0, native(stream)>>>(work, words, wrong);
  require_launched("checking payload");
}

}  // namespace orch::runtime::device
