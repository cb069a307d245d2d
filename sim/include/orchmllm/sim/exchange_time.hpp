// How long the exchanges of a step plan take by themselves, on links that nothing else uses.
//
// As in a step (step.hpp): from all ranks being ready to the last byte, stage after stage where the exchange goes node
// first. So over outputs and their gradients they add up to a step's exchange time where collectives leave the links
// alone. Endpoint model or fluid network. Units: seconds. Complexity: O(transfers), for the fluid network as
// play_exchange().
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "orchmllm/orchestrate/step_plan.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/step.hpp"

namespace orch::sim {

struct ExchangeTime {
  double forward = 0;
  double backward = 0;  ///< gradients; raw inputs have none
};

/// Route → its times. Ranks are GPUs.
[[nodiscard]] std::vector<ExchangeTime> exchange_times(const StepPlan& plan, const Cluster& cluster,
                                                       NetworkModel network = NetworkModel::endpoints);

}  // namespace orch::sim
