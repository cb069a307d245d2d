// A step in which every micro-batch of every instance holds the same: sequences of one length, text only.
//
// What published throughput tables measure. One instance stands for all, so that a step of thousands of GPUs costs what
// a step of one instance does; collectives have their real sizes. Complexity: O(layers · micro-batches · stages).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "orchmllm/model/architecture.hpp"
#include "orchmllm/sim/step.hpp"

namespace orch::sim {

struct UniformBatch {
  std::uint64_t length = 0;     ///< tokens of a sequence
  std::uint64_t sequences = 0;  ///< of a micro-batch
  std::uint64_t attention = 0;  ///< tokens of the samples that a sequence is packed from; 0: one sample fills it
};

/// `parallelism.micro_batches` micro-batches on each of gpus / (tensor · context · pipeline) instances. Throws
/// InvalidInput if that does not divide, or as play_step() and play_pipeline() do.
[[nodiscard]] PlayedStep play_uniform(const Mllm& model, const UniformBatch& batch, std::uint32_t gpus,
                                      const Cluster& cluster, const Parallelism& parallelism);

}  // namespace orch::sim
