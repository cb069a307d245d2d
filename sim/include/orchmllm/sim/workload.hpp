// Compute and memory of one rank's batch in one phase, from the model's shape and the cluster's achieved rates.
//
// Forward time of one layer = matrix work / GEMM rate + attention work / attention rate + bytes of memory-bound
// operators / bandwidth, at least the time to read the weights and to launch the kernels. A backward layer does the
// matrix work twice and attention 2.5 times, and recomputes the forward layer first (full activation recomputation).
// Units: seconds, bytes, FLOPs. docs/simulator.md has the equations.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/model/architecture.hpp"
#include "orchmllm/orchestrate/step_plan.hpp"
#include "orchmllm/sim/cluster.hpp"

namespace orch::sim {

/// One phase of a model as the simulator sees it: an encoder with its connector, or the LLM with its head.
struct PhaseShape {
  std::string name;
  Transformer transformer;
  std::uint64_t attention_span = 0;
  bool padded_front_end = false;
  double front_end_flops_per_token = 0;
  double connector_flops_per_output = 0;  ///< per token that leaves an encoder
  double head_flops_per_token = 0;        ///< LLM
  double first_parameters = 0;            ///< with the first layer: front end or embedding
  double last_parameters = 0;             ///< with the last layer: connector or output head
};

/// Encoders in the model's order, then the LLM.
[[nodiscard]] std::vector<PhaseShape> phase_shapes(const Mllm& model);

/// What a rank's batch in one phase amounts to.
struct PhaseWork {
  double tokens = 0;
  double padded_tokens = 0;  ///< units · longest unit: what a padded front end processes
  double outputs = 0;        ///< tokens that leave an encoder
  double attention_pairs = 0;
  double attention_forward_seconds = 0;   ///< all layers
  double attention_backward_seconds = 0;  ///< all layers, without recomputation
};

/// Work of every rank in one phase of a step.
[[nodiscard]] std::vector<PhaseWork> rank_work(const PhaseShape& shape, const PhasePlan& plan, std::uint32_t ranks,
                                               const Cluster& cluster);

/// Layers that FSDP gathers together.
struct Unit {
  std::size_t phase = 0;
  std::uint64_t layers = 0;
  bool first = false;  ///< of its phase: front end or embedding
  bool last = false;   ///< of its phase: connector or head
  double parameters = 0;
};

/// All units in forward order.
[[nodiscard]] std::vector<Unit> fsdp_units(const std::vector<PhaseShape>& shapes, std::uint32_t layers_per_unit);

[[nodiscard]] double forward_seconds(const Unit& unit, const PhaseShape& shape, const PhaseWork& work,
                                     const Cluster& cluster);
/// Recomputation included.
[[nodiscard]] double backward_seconds(const Unit& unit, const PhaseShape& shape, const PhaseWork& work,
                                      const Cluster& cluster);

/// Model FLOPs of forward and backward, without recomputation: what MFU counts.
[[nodiscard]] double model_flops(const PhaseShape& shape, const PhaseWork& work);

/// Peak memory of one rank by contributor, bytes.
struct Memory {
  double states = 0;       ///< sharded weights, gradients, optimizer
  double gathered = 0;     ///< weights of two units, full gradients of one
  double checkpoints = 0;  ///< layer inputs kept for the backward pass
  double working_set = 0;  ///< activations of the layer being recomputed
  double logits = 0;
  double exchange = 0;  ///< staging of encoder outputs, sent and received
  double reserved = 0;  ///< context, communication buffers, fragmentation
  [[nodiscard]] double total() const {
    return states + gathered + checkpoints + working_set + logits + exchange + reserved;
  }
  /// Name and bytes of the largest part.
  [[nodiscard]] std::pair<std::string, double> largest() const;
};

/// `work[phase]` of one rank; `exchange_bytes` sent and received by it; `shard` = GPUs that share the states.
[[nodiscard]] Memory rank_memory(const std::vector<PhaseShape>& shapes, const std::vector<Unit>& units,
                                 std::span<const PhaseWork> work, double exchange_bytes, std::uint32_t shard,
                                 const Cluster& cluster);

}  // namespace orch::sim
