// A whole run on one rank: inputs, agreement, planning ahead, execution.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend.hpp"
#include "options.hpp"
#include "orchmllm/placement/topology.hpp"
#include "orchmllm/runtime/executor.hpp"
#include "orchmllm/runtime/mpi_transport.hpp"

namespace orch::apps {

/// One exchange of a step, one way.
struct ExchangeFigures {
  std::string from;
  std::string to;
  std::size_t route = 0;
  runtime::Direction direction = runtime::Direction::forward;
  bool hierarchical = false;
  std::uint64_t moved_bytes = 0;       ///< between ranks, with what a node-first schedule passes on; of it
  std::uint64_t inter_node_bytes = 0;  ///< … between nodes
  double predicted_seconds = 0;
};

/// What rank 0 says of a step's plan; other ranks keep the hash and the imbalances alone.
struct PlanFigures {
  std::uint64_t hash = 0;
  std::vector<double> imbalance_before;  ///< phase → max / mean cost where samples were drawn
  std::vector<double> imbalance;         ///< … as planned
  std::vector<ExchangeFigures> exchanges;
  std::vector<std::vector<double>> predicted_compute;  ///< rank → phase → seconds, forward and backward
};

/// One step on one rank.
struct RankStep {
  runtime::StepReport report;
  double plan_seconds = 0;       ///< beside the step before
  double plan_wait_seconds = 0;  ///< that the step had to wait for its plan, and for the ranks to compare it
};

/// One strategy.
struct Run {
  std::string strategy;
  RunInputs inputs;
  Topology topology;
  std::vector<std::string> phases;
  std::vector<PlanFigures> plans;            ///< by step
  std::vector<std::vector<RankStep>> ranks;  ///< rank → step
  std::vector<Json> devices;                 ///< of ranks that have one of their own
};

/// Nodes of consecutive ranks: as told, or as the ranks' hosts have them. Throws AgreedError where ranks of a host are
/// apart.
[[nodiscard]] Topology find_topology(const std::vector<std::string>& hosts, std::uint32_t ranks_per_node);

/// A run for each strategy. Every rank returns the same, but for predictions, which rank 0 has. Throws AgreedError if
/// ranks differ or one cannot read its inputs, TransportError.
[[nodiscard]] std::vector<Run> execute(Backend& transport, const ExecuteOptions& options);

}  // namespace orch::apps
