// One training step on a cluster: from a step plan to a task graph, played by the engine.
//
// Units of layers run in order: encoders, LLM, then backwards. FSDP gathers each unit's weights (prefetching one unit)
// and reduces its gradients among the `shard` ranks of a group; HSDP reduces them once more among the groups. Every
// encoder's outputs travel to the layout of the phases that it feeds when all ranks have finished that encoder, their
// gradients travel back after that phase's backward pass. The next step's raw inputs travel on the same links
// meanwhile.
// docs/simulator.md lists tasks, resources and equations.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orchmllm/orchestrate/step_plan.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/engine.hpp"
#include "orchmllm/sim/workload.hpp"

namespace orch::sim {

/// How the ranks share the model's states: groups of `shard` consecutive ranks hold one copy each.
struct Sharding {
  std::uint32_t shard = 1;
};

enum class Activity : std::uint8_t { barrier, forward, backward, gather, reduce, exchange, input, optimizer };

struct TaskTag {
  Activity activity = Activity::barrier;
  std::uint16_t unit = 0;  ///< index into the units; for exchanges, of the encoder phase, for inputs of their phase
  std::uint32_t rank = 0;
};

struct PhaseTimes {
  std::string phase;
  double busy_seconds = 0;  ///< mean over ranks, forward and backward compute
  double wall_seconds = 0;  ///< first start to last end, forward and backward
  [[nodiscard]] double idle_fraction() const { return wall_seconds > 0 ? 1 - busy_seconds / wall_seconds : 0; }
};

/// Where a step's time goes, mean over ranks; the parts add up to the step.
struct Breakdown {
  std::vector<double> compute;     ///< phase → forward and backward
  double optimizer = 0;            ///< seconds
  double exposed_exchange = 0;     ///< compute stands still while outputs or their gradients travel
  double exposed_collectives = 0;  ///< … while weights are gathered or gradients reduced
  double waiting = 0;              ///< for slower ranks, or for a link that is busy with something else

  [[nodiscard]] double total() const;
};

struct StepResult {
  double seconds = 0;
  double busy_seconds = 0;      ///< compute, mean over ranks
  double exchange_seconds = 0;  ///< output exchanges, forward and backward: from all ranks ready to the last byte
  double model_flops = 0;       ///< all ranks
  double tokens = 0;            ///< LLM tokens, all ranks
  std::uint64_t output_intra_node_bytes = 0;  ///< output exchanges, forward and backward
  std::uint64_t output_inter_node_bytes = 0;
  std::uint64_t input_intra_node_bytes = 0;  ///< input exchanges
  std::uint64_t input_inter_node_bytes = 0;
  std::vector<PhaseTimes> phases;
  Breakdown breakdown;
  Memory peak_memory;  ///< of the rank that needs most
  std::uint32_t peak_rank = 0;
  std::uint64_t events = 0;
};

/// A played step with its tasks, for timelines and tests.
struct PlayedStep {
  StepResult result;
  TaskGraph graph;
  Schedule schedule;
  std::vector<TaskTag> tags;  ///< task → what it is
  std::vector<Unit> units;
};

/// Throws InvalidInput if `shard` does not divide the number of ranks.
[[nodiscard]] PlayedStep play_step(const StepPlan& plan, const std::vector<PhaseShape>& shapes, const Cluster& cluster,
                                   const Sharding& sharding);

}  // namespace orch::sim
