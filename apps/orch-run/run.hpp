// A whole run on one rank: inputs, agreement, planning ahead, execution.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.hpp"
#include "orchmllm/placement/topology.hpp"
#include "orchmllm/runtime/executor.hpp"
#include "orchmllm/runtime/mpi_transport.hpp"

namespace orch::apps {

/// What rank 0 says of a step's plan.
struct PlanFigures {
  std::uint64_t hash = 0;
  std::vector<double> imbalance_before;  ///< phase → max / mean cost where samples were drawn
  std::vector<double> imbalance;         ///< … as planned
};

/// One step on one rank.
struct RankStep {
  runtime::StepReport report;
  double plan_seconds = 0;       ///< beside the step before
  double plan_wait_seconds = 0;  ///< that the step had to wait for its plan, and for the ranks to compare it
};

struct Run {
  RunInputs inputs;
  Topology topology;
  std::vector<std::string> phases;
  std::vector<PlanFigures> plans;            ///< by step
  std::vector<std::vector<RankStep>> ranks;  ///< rank → step
};

/// Every rank returns the same. Throws AgreedError if ranks differ or one cannot read its inputs, TransportError.
[[nodiscard]] Run execute(runtime::MpiTransport& transport, const ExecuteOptions& options);

}  // namespace orch::apps
