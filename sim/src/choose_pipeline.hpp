// The pipeline of a run that leaves it open: the fastest that fits into memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "orchmllm/sim/simulate.hpp"

namespace orch::sim {

/// Tries tensor-parallel sizes within a node, pipeline stages, chunks a stage, micro-batches of 1, 2 and 4 samples, and
/// recomputation of nothing or everything, each on the first batch of two instances, and sets the fastest that fits.
/// Throws Infeasible if none fits; names what comes closest.
void choose_pipeline(const Mllm& model, const PhaseLengths& lengths, const Cluster& cluster, const Strategy& strategy,
                     Configuration& configuration);

}  // namespace orch::sim
