// Simulation of training steps under a strategy: sampled batches are planned, played and summed up.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/step.hpp"
#include "orchmllm/sim/strategy.hpp"
#include "orchmllm/sim/workload.hpp"

namespace orch::sim {

/// A factor on one GPU's or node's times.
struct Slowdown {
  std::uint32_t gpu = 0;
  double factor = 1;
};

/// A node that is lost once: its step is run again, after those since the last checkpoint, after a restart.
struct NodeLoss {
  std::uint32_t step = 0;
  std::uint32_t checkpoint_every = 1;  ///< steps
  double restart_seconds = 0;
};

struct Configuration {
  std::uint32_t gpus = 0;
  std::uint32_t batch = 0;  ///< samples a GPU and step, on average: an instance of n GPUs draws n · batch
  std::uint32_t steps = 1;
  std::uint64_t seed = 1;
  Parallelism parallelism = {};
  std::uint32_t micro_batch = 1;  ///< samples of a pipeline's micro-batch
  bool padded = false;            ///< LLM sequences are filled up to the longest of their micro-batch, not packed
  NetworkModel network = NetworkModel::endpoints;

  std::optional<double> plan_seconds = {};  ///< of a step; none: as the cluster file says
  bool measure_planning = false;            ///< take what planning takes here, which differs from run to run
  bool overlap_planning = true;             ///< with the step before; else every step begins with it

  std::vector<Slowdown> slow_gpus = {};
  std::vector<Slowdown> slow_links = {};
  double jitter = 0;  ///< standard deviation of the logarithm of every pass's time
  std::optional<NodeLoss> lost_node = {};
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
  Parallelism parallelism;  ///< as it was run
  std::uint32_t micro_batch = 1;
  double mfu = 0;
  double hfu = 0;  ///< with recomputation
  double step_seconds = 0;
  double tokens_per_second_per_gpu = 0;
  double idle_fraction = 0;  ///< of compute, over whole steps
  double exchange_seconds = 0;
  double plan_seconds = 0;               ///< as the simulated system spends them
  double exchange_intra_node_bytes = 0;  ///< encoder outputs and their gradients
  double exchange_inter_node_bytes = 0;
  double input_intra_node_bytes = 0;  ///< raw inputs, on the prefetch path
  double input_inter_node_bytes = 0;
  double total_seconds = 0;  ///< of all steps, with what a lost node costs
  double lost_seconds = 0;   ///< of those: restart and steps that are run again
  double gpu_hours = 0;      ///< of all steps
  double cost = 0;           ///< of them, in the cluster's currency
  std::vector<PhaseSummary> phases;
  Breakdown breakdown;
  Memory peak_memory;  ///< largest over ranks and steps
  std::uint32_t peak_rank = 0;
  std::uint32_t peak_stage = 0;
  std::uint32_t peak_step = 0;
  bool oom = false;
  std::vector<StepResult> steps;
  std::uint64_t events = 0;
  std::uint64_t plan_hash = 0;  ///< fingerprint of all step plans

  [[nodiscard]] std::vector<std::string> phase_names() const;
  /// Shortest time that a share of the steps do not exceed.
  [[nodiscard]] double step_quantile(double share) const;
};

/// Called after every step with (steps done, steps in all).
using Progress = std::function<void(std::uint32_t, std::uint32_t)>;
/// Called with every played step, for timelines.
using Observe = std::function<void(std::uint32_t step, const StepPlan& plan, const PlayedStep& played)>;

/// Throws InvalidInput for a configuration that does not add up, Infeasible if no pipeline of `megatron` can be found.
[[nodiscard]] StrategyResult simulate(const Mllm& model, const PhaseLengths& lengths, const Cluster& cluster,
                                      const Configuration& configuration, const Strategy& strategy,
                                      const Progress& progress = {}, const Observe& observe = {});

/// The largest batch (samples a GPU and step) that fits into memory in all steps, at most `most`; 0 if none does.
/// Complexity: O(log most) simulations.
[[nodiscard]] std::uint32_t find_batch(const Mllm& model, const PhaseLengths& lengths, const Cluster& cluster,
                                       Configuration configuration, const Strategy& strategy, std::uint32_t most,
                                       const Progress& progress = {});

}  // namespace orch::sim
