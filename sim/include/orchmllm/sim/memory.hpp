// Peak memory of one GPU by contributor: what stays (weights, gradients, optimizer) and what a batch needs.
//
// Bytes a layer keeps per token for its backward pass (16-bit activations, t = tensor-parallel GPUs, s = t with
// sequence parallelism, else 1):
//
//   none       4·h/s norms' inputs + 4·h/s their outputs + 2·(q + 2·kv)/t + 2·q/t + 2·(1 or 2)·ffn/t + 2·ffn/t
//              + 2·h/s dropout masks, if any + 5·heads/t · length, without a flash kernel
//   selective  without the attention term, and without what the cluster's software repeats
//   full       2·h/s: its input
//
// For a GPT layer that is h·(10 + 24/t) + 5·heads·length/t, of arXiv 2205.05198. Units: bytes, tokens.
// Complexity: O(phases).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/parallelism.hpp"
#include "orchmllm/sim/workload.hpp"

namespace orch::sim {

struct Memory {
  double parameters = 0;  ///< resident weights, or this GPU's shard
  double gradients = 0;
  double optimizer = 0;             ///< master weights and moments
  double gathered = 0;              ///< FSDP: weights of two units, full gradients of one
  std::vector<double> activations;  ///< phase → kept for the backward pass
  double working_set = 0;           ///< activations of the layer that is recomputed
  double logits = 0;
  double exchange = 0;       ///< staging of encoder outputs, sent and received
  double communication = 0;  ///< buffers of the communication library
  double reserved = 0;       ///< context, workspaces
  double fragmentation = 0;  ///< lost by the allocator

  [[nodiscard]] double total() const;
  /// Parts by name in a fixed order; activations as "activations PHASE".
  [[nodiscard]] std::vector<std::pair<std::string, double>> parts(const std::vector<std::string>& phases) const;
  /// Name and bytes of the largest part.
  [[nodiscard]] std::pair<std::string, double> largest(const std::vector<std::string>& phases) const;
};

/// Bytes that one layer keeps for `work`, on one GPU.
[[nodiscard]] double kept_bytes(const Transformer& t, const PhaseWork& work, const Software& software,
                                const Parallelism& parallelism, Recompute recompute);

/// What one GPU holds, whatever the batch: its layers' weights, gradients and optimizer, reserved memory.
/// `parameters` = of the model's part that its pipeline stage holds, `largest_unit` of what FSDP gathers at a time,
/// `instances` = data-parallel instances.
[[nodiscard]] Memory resident_memory(double parameters, double largest_unit, std::uint32_t instances,
                                     const Cluster& cluster, const Parallelism& parallelism);

/// Adds what one batch of a phase needs, kept in `layers_alive` layers (twice as many for two batches).
void add_activations(Memory& memory, std::size_t phase, const PhaseShape& shape, const PhaseWork& work,
                     double layers_alive, const Cluster& cluster, const Parallelism& parallelism);
/// Adds the LLM's logits and their gradient.
void add_logits(Memory& memory, const PhaseShape& llm, const PhaseWork& work, const Cluster& cluster,
                const Parallelism& parallelism);
/// Adds what the allocator loses of everything so far.
void add_fragmentation(Memory& memory, const Cluster& cluster);

}  // namespace orch::sim
