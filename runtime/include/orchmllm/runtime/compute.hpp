// Compute for realism: matrix products of as many operations as a phase asks for, scaled down by a stated factor.
//
// A rank's operations in a phase follow from the model's shape and the lengths of its items; a backward pass is twice a
// forward one. They are run as single-precision products of blocks of rows with one 128 × 128 matrix (Eigen, or a plain
// loop where it is absent), rounded to whole rows: 32,768 operations each.
// Units: floating-point operations, a multiply-add is two. Complexity: as asked for.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <variant>
#include <vector>

#include "orchmllm/model/flops.hpp"
#include "orchmllm/orchestrate/step_plan.hpp"

#ifdef ORCHMLLM_HAVE_EIGEN
#include <Eigen/Core>
#endif

namespace orch::runtime {

/// phase → forward operations of a rank's items.
[[nodiscard]] inline std::vector<double> forward_flops(const Mllm& model, const StepPlan& plan, std::uint32_t rank) {
  std::vector<double> flops;
  for (std::size_t p = 0; p < plan.phases.size(); ++p) {
    const PhasePlan& phase = plan.phases[p];
    const bool llm = p + 1 == plan.phases.size();
    const Transformer& transformer = llm ? model.llm : model.encoders[p].transformer;
    const std::uint64_t span = llm ? 0 : attention_span(model.encoders[p].rule);
    double tokens = 0;
    double pairs = 0;
    double outputs = 0;
    double longest = 0;
    double units = 0;
    for (const std::uint32_t item : phase.layout.items(rank)) {
      const double length = phase.length[item];
      tokens += length;
      pairs += attention_pairs(phase.length[item], span);
      outputs += llm ? 0 : phase.output[item];
      longest = std::max(longest, length);
      units += length > 0 ? 1 : 0;
    }
    double sum = static_cast<double>(linear_flops_per_token(transformer)) * tokens +
                 static_cast<double>(attention_flops_per_pair(transformer)) * pairs;
    if (!llm) {
      const Encoder& encoder = model.encoders[p];
      const bool padded = std::holds_alternative<AudioFrames>(encoder.rule);
      sum += static_cast<double>(front_end_flops_per_token(encoder)) * (padded ? units * longest : tokens);
      sum += static_cast<double>(connector_flops_per_token(encoder.connector)) * outputs;
    }
    flops.push_back(sum);
  }
  return flops;
}

/// Runs products of a given number of operations.
class Products {
 public:
  Products() : weights_(width * width, 1.0F / width), input_(rows * width, 1.0F), output_(rows * width, 0.0F) {}

  void run(double flops) {
    constexpr double row_flops = 2.0 * width * width;
    for (auto left = std::llround(flops / row_flops); left > 0; left -= rows) {
      multiply(static_cast<std::size_t>(std::min<long long>(left, rows)));
      std::swap(input_, output_);  // each product needs the one before: none can be left out
    }
  }

 private:
  static constexpr int width = 128;
  static constexpr int rows = 128;

#ifdef ORCHMLLM_HAVE_EIGEN
  void multiply(std::size_t count) {
    using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const auto n = static_cast<Eigen::Index>(count);
    const Eigen::Map<const Matrix> input(input_.data(), n, width);
    const Eigen::Map<const Matrix> weights(weights_.data(), width, width);
    Eigen::Map<Matrix>(output_.data(), n, width).noalias() = input * weights;
  }
#else
  void multiply(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      float* out = output_.data() + i * width;
      std::fill_n(out, width, 0.0F);
      for (std::size_t k = 0; k < width; ++k) {
        const float factor = input_[i * width + k];
        const float* row = weights_.data() + k * width;
        for (std::size_t j = 0; j < width; ++j) out[j] += factor * row[j];
      }
    }
  }
#endif

  std::vector<float> weights_;
  std::vector<float> input_;
  std::vector<float> output_;
};

}  // namespace orch::runtime
