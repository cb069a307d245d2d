// What all steps of a configured run share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "orchmllm/sim/simulate.hpp"
#include "orchmllm/sim/step_work.hpp"

namespace orch::sim {

/// Refers to all that it is given. `split` is left to strategies that cut samples.
[[nodiscard]] inline StepModel step_model(const Mllm& model, const std::vector<PhaseShape>& shapes,
                                          const Cluster& cluster, const Configuration& configuration,
                                          const Strategy& strategy) {
  return {.model = model,
          .shapes = shapes,
          .cluster = cluster,
          .parallelism = configuration.parallelism,
          .micro_batch = configuration.micro_batch,
          .exchange = strategy.exchange,
          .network = configuration.network,
          .padded = configuration.padded};
}

}  // namespace orch::sim
