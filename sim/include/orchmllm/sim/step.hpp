// One training step on a cluster: from work and routes to a task graph, played by the engine.
//
// Two programs of a step share tasks, resources and measures:
//
//   play_step()      data-parallel instances run phase by phase: encoders, LLM, then backwards. FSDP gathers each
//   unit's
//                    weights (prefetching one unit) and reduces its gradients; HSDP reduces them once more among the
//                    groups. The LLM runs micro-batch by micro-batch, forward and backward. Every encoder's outputs
//                    travel to the layout of the phases that it feeds when all instances have finished that encoder,
//                    their gradients travel back after that phase's backward pass. The next step's raw inputs travel
//                    on the same links meanwhile.
//   play_pipeline()  instances are pipelines: encoders and the first LLM layers on stage 0, micro-batches in 1F1B or
//                    interleaved order; weights are gathered and gradients reduced once a step.
//
// docs/simulator.md lists tasks, resources and equations.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/orchestrate/step_plan.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/engine.hpp"
#include "orchmllm/sim/memory.hpp"
#include "orchmllm/sim/parallelism.hpp"
#include "orchmllm/sim/workload.hpp"

namespace orch::sim {

/// phase → micro-batch → instance → what it runs. With one instance for many, all are taken to run the same.
struct StepWork {
  std::uint32_t instances = 1;  ///< data-parallel instances of the system
  std::vector<std::vector<std::vector<PhaseWork>>> work;

  [[nodiscard]] std::uint32_t simulated() const { return static_cast<std::uint32_t>(work.back().front().size()); }
};

enum class ExchangeMethod : std::uint8_t {
  all_to_all,  ///< only what must move, as the plan says
  all_gather,  ///< every instance gets everything
};

/// How links are shared.
enum class NetworkModel : std::uint8_t {
  endpoints,  ///< one task at a time on each GPU's NVLink and NIC; all beyond them is wide enough
  fluid,      ///< max-min fair flows over NVSwitch ports, NICs, leaf switches and spine (fabric.hpp)
};

/// What travels between phases and before them, in terms of instances. No routes: nothing.
struct Exchanges {
  std::span<const Route> routes = {};
  const Topology& topology;
  ExchangeMethod method = ExchangeMethod::all_to_all;
  NetworkModel network = NetworkModel::endpoints;
};

/// What disturbs a step. Empty vectors: nothing.
struct Conditions {
  std::vector<double> compute_scale;  ///< lane (instance · stages + stage) → factor on its compute times
  std::vector<double> link_scale;     ///< lane → factor on the times of its links
  double jitter = 0;                  ///< standard deviation of the logarithm of every pass's time
  std::uint64_t seed = 0;             ///< of the jitter
};

enum class Activity : std::uint8_t { barrier, forward, backward, gather, reduce, exchange, input, send, optimizer };

struct TaskTag {
  Activity activity = Activity::barrier;
  std::uint16_t unit = 0;    ///< index into the units; for exchanges, of the encoder phase, for inputs of their phase
  std::uint32_t lane = 0;    ///< whose: instance · pipeline stages + stage; of a collective, its first
  std::uint32_t number = 0;  ///< of passes the micro-batch, of exchanges their place in the step
};

struct PhaseTimes {
  std::string phase;
  double busy_seconds = 0;  ///< mean over lanes, forward and backward compute
  double wall_seconds = 0;  ///< first start to last end, forward and backward
  [[nodiscard]] double idle_fraction() const { return wall_seconds > 0 ? 1 - busy_seconds / wall_seconds : 0; }
};

/// Where a step's time goes, mean over lanes; the parts add up to the step.
struct Breakdown {
  std::vector<double> compute;     ///< phase → forward and backward
  double optimizer = 0;            ///< seconds
  double exposed_exchange = 0;     ///< compute stands still while outputs or their gradients travel
  double exposed_collectives = 0;  ///< … while weights are gathered or gradients reduced
  double bubble = 0;               ///< … for another pipeline stage
  double planning = 0;             ///< … for the plan
  double waiting = 0;              ///< for slower instances, or for a link that is busy with something else
  double overhead = 0;             ///< host work between steps

  [[nodiscard]] double total() const;
  Breakdown& operator+=(const Breakdown& other);
  Breakdown& operator/=(double divisor);
};

/// All parts but compute, as outputs name them.
struct BreakdownPart {
  const char* name;
  double Breakdown::*seconds;
};
inline constexpr std::array<BreakdownPart, 7> breakdown_parts{{{"optimizer", &Breakdown::optimizer},
                                                               {"exposed exchange", &Breakdown::exposed_exchange},
                                                               {"exposed collectives", &Breakdown::exposed_collectives},
                                                               {"bubble", &Breakdown::bubble},
                                                               {"planning", &Breakdown::planning},
                                                               {"waiting", &Breakdown::waiting},
                                                               {"overhead", &Breakdown::overhead}}};

struct StepResult {
  double seconds = 0;
  double busy_seconds = 0;      ///< compute, mean over lanes
  double exchange_seconds = 0;  ///< output exchanges, forward and backward: from all ranks ready to the last byte
  double model_flops = 0;       ///< all instances
  double hardware_flops = 0;    ///< with recomputation
  double tokens = 0;            ///< LLM tokens, all instances
  std::uint64_t output_intra_node_bytes = 0;  ///< output exchanges, forward and backward
  std::uint64_t output_inter_node_bytes = 0;
  std::uint64_t input_intra_node_bytes = 0;  ///< input exchanges
  std::uint64_t input_inter_node_bytes = 0;
  std::vector<PhaseTimes> phases;
  Breakdown breakdown;
  Memory peak_memory;  ///< of the lane that needs most
  std::uint32_t peak_lane = 0;
  std::uint64_t events = 0;
};

/// A played step with its tasks, for timelines and tests. Resource 3·l + {0, 1, 2} is lane l's compute, NVLink, NIC;
/// groups follow.
struct PlayedStep {
  StepResult result;
  TaskGraph graph;
  Schedule schedule;
  std::vector<TaskTag> tags;  ///< task → what it is
  std::vector<Unit> units;
  std::uint32_t lanes = 0;
};

/// A phase-by-phase step: one micro-batch of every encoder, any number of the LLM. Throws InvalidInput if the shard
/// group does not divide the instances.
[[nodiscard]] PlayedStep play_step(const std::vector<PhaseShape>& shapes, const StepWork& work,
                                   const Exchanges& exchanges, const Cluster& cluster, const Parallelism& parallelism,
                                   const Conditions& conditions = {});

/// A pipelined step: every phase has the same micro-batches. Throws InvalidInput if layers or micro-batches do not fit
/// the schedule.
[[nodiscard]] PlayedStep play_pipeline(const std::vector<PhaseShape>& shapes, const StepWork& work,
                                       const Cluster& cluster, const Parallelism& parallelism,
                                       const Conditions& conditions = {});

}  // namespace orch::sim
