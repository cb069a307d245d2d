// What `orch plan` says of step plans: modes, JSON of a step, tables, the comparison of all modes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common.hpp"
#include "orchmllm/orchestrate/orchestrator.hpp"

namespace orch::apps {

/// Choices by their names on the command line.
struct PlanMode {
  std::string balance = "lpt";
  std::string granularity = "sample";
  std::string placement = "auto";
  std::string objective = "total";
  std::string exchange = "direct";
  bool joint = true;

  [[nodiscard]] bool places() const { return (balance == "lpt" || balance == "auto") && placement != "none"; }
  /// What applies, for JSON.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> named() const;
  /// Throws InvalidInput for a placement that this program was built without.
  [[nodiscard]] StepOptions step_options(const sim::Cluster& cluster, double tolerance) const;
};

/// Steps of one run, planned under one mode.
struct PlanRun {
  const RunInputs& inputs;
  const RunOptions& options;
  PlanMode mode;
  double tolerance = 0.01;

  void each_step(const std::function<void(std::uint32_t step, const StepPlan& plan)>& visit) const;
};

/// Figures of a step: phases and exchanges.
[[nodiscard]] Json step_json(std::uint32_t step, const StepPlan& plan, const sim::Cluster& cluster);

/// Means over steps (of step_json()) as tables.
void print_steps(const Json& steps);

/// All balancers, granularities, placements and schedules on the same batches: a row of figures each, means over steps.
[[nodiscard]] Json compare_modes(const PlanRun& run);

/// compare_modes() as a table.
void print_modes(const Json& modes);

}  // namespace orch::apps
