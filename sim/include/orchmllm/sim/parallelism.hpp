// How a model is spread over GPUs: tensor, context, pipeline and data parallelism, micro-batches, recomputation.
//
// A data-parallel *instance* (a rank of the planner) spans tensor · context · pipeline GPUs. GPUs are numbered with the
// tensor index fastest, then context, instance, pipeline stage, so a stage's instances are neighbours.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/error.hpp"

namespace orch::sim {

enum class DataParallel : std::uint8_t {
  fsdp,                   ///< weights, gradients and optimizer are sharded; weights are gathered when needed
  distributed_optimizer,  ///< the optimizer is sharded; gradients are reduced and weights gathered once a step
  replicated,             ///< every instance has all; gradients are reduced once a step
};

/// What the backward pass computes once more, in favour of memory.
enum class Recompute : std::uint8_t {
  none,
  selective,  ///< cheap operators, as the cluster's software says
  alternate,  ///< every second layer in full
  full,       ///< every layer
};

/// What is trained: everything, or adapters beside frozen weights.
enum class Trainable : std::uint8_t { full, adapters };

struct Parallelism {
  std::uint32_t tensor = 1;
  std::uint32_t context = 1;
  std::uint32_t pipeline = 1;
  std::uint32_t virtual_stages = 1;  ///< chunks of layers on each pipeline stage
  std::uint32_t micro_batches = 1;   ///< of an instance and step
  DataParallel data = DataParallel::fsdp;
  std::uint32_t shard = 0;  ///< instances that share the states, for FSDP; 0: all
  Recompute recompute = Recompute::full;
  Trainable trainable = Trainable::full;

  [[nodiscard]] std::uint32_t gpus() const { return tensor * context * pipeline; }
  /// GPUs that one copy of the optimizer is spread over, but for tensor and pipeline parallelism.
  [[nodiscard]] std::uint32_t optimizer_shards(std::uint32_t instances) const {
    if (data == DataParallel::replicated) return 1;
    return (data == DataParallel::fsdp && shard > 0 ? shard : instances) * context;
  }
  /// Of one pipeline stage.
  [[nodiscard]] std::uint32_t stage_gpus() const { return tensor * context; }
};

/// Data-parallel instances on `gpus` GPUs. Throws InvalidInput if they are not a multiple of what one instance spans.
[[nodiscard]] inline std::uint32_t count_instances(std::uint32_t gpus, const Parallelism& p) {
  if (gpus > 0 && gpus % p.gpus() == 0) return gpus / p.gpus();
  throw InvalidInput(std::to_string(gpus) + " GPUs are not a multiple of the " + std::to_string(p.gpus()) +
                     " that one instance spans (tensor " + std::to_string(p.tensor) + " · context " +
                     std::to_string(p.context) + " · pipeline " + std::to_string(p.pipeline) + ")");
}

/// GPUs of one collective: so many, so many of them in each node.
struct Group {
  std::uint32_t members = 1;
  std::uint32_t per_node = 1;

  [[nodiscard]] std::uint32_t nodes() const { return static_cast<std::uint32_t>(ceil_div(members, per_node)); }
};

/// `members` GPUs that are `stride` apart.
[[nodiscard]] inline Group strided_group(std::uint32_t members, std::uint32_t stride, std::uint32_t gpus_per_node) {
  return {members, std::clamp(gpus_per_node / std::max(stride, 1U), 1U, std::max(members, 1U))};
}

}  // namespace orch::sim
