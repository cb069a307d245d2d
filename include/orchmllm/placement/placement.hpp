// Node-wise placement: one call for both objectives, by size and deadline.
//
// `total` is solved by flow, `bottleneck` by swaps from there; at 320 nodes of 8 ranks that takes tens of milliseconds,
// and most bottlenecks are proved optimal. The result says what was chosen and why (`solver`, `reason`). Every rank
// plans for itself and must find the same plan, so a deadline may not be a timer: it becomes limits of counted work, by
// rates below what an ordinary core does; a slow machine takes longer and finds the same. ilp.hpp is never chosen: its
// limit is a timer, and at 8 and 16 nodes lp_solve takes 30 to 150 times as long, or has not finished after ten seconds
// (bench/results/placement.json). It is the oracle and the published way.
// Complexity and guarantee: as flow.hpp. Throws InvalidInput.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "orchmllm/placement/flow.hpp"

namespace orch {

enum class PlacementObjective : std::uint8_t { total, bottleneck };

struct PlacementOptions {
  PlacementObjective objective = PlacementObjective::total;
  double seconds = 10;  ///< about what one core may take; more than an hour is an hour
};

namespace placement {

/// Limits that an ordinary core keeps in the time given: half of it for the flow, a tenth for the bound.
[[nodiscard]] inline PlacementEffort effort_within(double seconds) {
  if (!(seconds > 0)) throw InvalidInput("a placement needs more than " + std::to_string(seconds) + " seconds");
  const double time = std::min(seconds, 3600.0);
  PlacementEffort effort;
  effort.flow = static_cast<std::uint64_t>(0.5 * time * 5e8);
  effort.visits = std::min(effort.visits, static_cast<std::uint64_t>(0.1 * time * 5e7));
  effort.swaps = static_cast<std::uint64_t>(0.4 * time * 2.5e8);
  return effort;
}

/// Rows of `by_rank` are balanced batches, places the ranks that hold their bytes now.
[[nodiscard]] inline Placement place(const TrafficMatrix& by_rank, const Topology& topology,
                                     const PlacementOptions& options = {}) {
  const PlacementEffort effort = effort_within(options.seconds);
  return options.objective == PlacementObjective::total ? place_total(by_rank, topology, effort)
                                                        : place_bottleneck(by_rank, topology, effort);
}

[[nodiscard]] inline Placement place(const TrafficMatrix& by_rank, const Topology& topology,
                                     PlacementObjective objective) {
  return place(by_rank, topology, PlacementOptions{.objective = objective});
}

}  // namespace placement

}  // namespace orch
