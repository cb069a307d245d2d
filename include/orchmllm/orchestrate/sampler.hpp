// The sampler of data-parallel training: seeded epochs over a trace, dealt to ranks in order.
//
// Every epoch is a uniform permutation of its own. Step t takes the next ranks · batch samples of the endless stream of
// epochs; rank r holds samples r · batch … (r + 1) · batch − 1 of them. Complexity: O(n) an epoch, O(batch) a step.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "orchmllm/base/error.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/base/sort.hpp"

namespace orch {

class Sampler {
 public:
  Sampler(std::size_t samples, std::uint64_t seed) : count_(sample_count(samples)), seed_(seed) {
    if (count_ == 0) throw InvalidInput("the trace has no samples");
    order_ = permutation(count_, Random(seed_, epoch_));
  }

  /// Indices into the trace of the next `samples` samples.
  [[nodiscard]] std::vector<std::uint32_t> next(std::size_t samples) {
    std::vector<std::uint32_t> batch;
    batch.reserve(samples);
    while (batch.size() < samples) {
      if (position_ == count_) {
        order_ = permutation(count_, Random(seed_, ++epoch_));
        position_ = 0;
      }
      batch.push_back(order_[position_++]);
    }
    return batch;
  }

 private:
  std::uint32_t count_;
  std::uint64_t seed_;
  std::uint64_t epoch_ = 0;
  std::uint32_t position_ = 0;
  std::vector<std::uint32_t> order_;
};

}  // namespace orch
