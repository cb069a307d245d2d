// Simulation of training steps under a strategy: sampled batches are planned, played and summed up.
//
//   none       every sample is processed where it was sampled
//   llm-only   the LLM phase is balanced, encoders are not (what balancing before sampling can reach)
//   orchmllm   every phase is balanced by LPT, batches are placed node by node, encoder outputs go straight to the
//              LLM's layout (the published method)
//   movement   every phase is balanced within 1 % of its bound, moving as little as possible
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/step.hpp"
#include "orchmllm/sim/workload.hpp"

namespace orch::sim {

struct Strategy {
  std::string name;
  StepOptions options;
};

/// Throws InvalidInput that lists the known names.
[[nodiscard]] Strategy strategy(const std::string& name);

struct Configuration {
  std::uint32_t ranks = 0;
  std::uint32_t batch = 0;  ///< samples a rank and step
  std::uint32_t steps = 1;
  std::uint64_t seed = 1;
  Sharding sharding;
};

/// Means over steps unless said otherwise.
struct PhaseSummary {
  std::string phase;
  double imbalance = 0;      ///< max / mean cost
  double gap = 0;            ///< max cost / lower bound − 1
  double idle_fraction = 0;  ///< of compute, while the phase runs
};

struct StrategyResult {
  std::string name;
  double mfu = 0;
  double step_seconds = 0;
  double tokens_per_second_per_gpu = 0;
  double idle_fraction = 0;  ///< of compute, over whole steps
  double exchange_seconds = 0;
  double plan_seconds = 0;               ///< measured: balancing all phases
  double exchange_intra_node_bytes = 0;  ///< encoder outputs and their gradients
  double exchange_inter_node_bytes = 0;
  double input_intra_node_bytes = 0;  ///< raw inputs, on the prefetch path
  double input_inter_node_bytes = 0;
  std::vector<PhaseSummary> phases;
  Breakdown breakdown;
  Memory peak_memory;  ///< largest over ranks and steps
  std::uint32_t peak_rank = 0;
  std::uint32_t peak_step = 0;
  bool oom = false;
  std::vector<StepResult> steps;
  std::uint64_t plan_hash = 0;  ///< fingerprint of all step plans
};

/// Called after every step with (steps done, steps in all).
using Progress = std::function<void(std::uint32_t, std::uint32_t)>;
/// Called with every played step, for timelines.
using Observe = std::function<void(std::uint32_t step, const StepPlan& plan, const PlayedStep& played)>;

[[nodiscard]] StrategyResult simulate(const Mllm& model, const PhaseLengths& lengths, const Cluster& cluster,
                                      const Configuration& configuration, const Strategy& strategy,
                                      const Progress& progress = {}, const Observe& observe = {});

}  // namespace orch::sim
