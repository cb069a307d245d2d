// Node-wise placement: one call for both objectives.
//
// The flow solvers are exact (total) or within their printed bound (bottleneck) in milliseconds at any size, so they
// are always chosen; ilp.hpp is the oracle and the published way.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "orchmllm/placement/flow.hpp"

namespace orch {

enum class PlacementObjective : std::uint8_t { total, bottleneck };

namespace placement {

/// Rows of `by_rank` are balanced batches, places the ranks that hold their bytes now.
[[nodiscard]] inline Placement place(const TrafficMatrix& by_rank, const Topology& topology,
                                     PlacementObjective objective = PlacementObjective::total) {
  return objective == PlacementObjective::total ? place_total(by_rank, topology) : place_bottleneck(by_rank, topology);
}

}  // namespace placement

}  // namespace orch
