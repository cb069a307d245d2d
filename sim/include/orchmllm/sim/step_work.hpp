// From a step plan to the work of a step, and its play.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "orchmllm/model/architecture.hpp"
#include "orchmllm/orchestrate/step_plan.hpp"
#include "orchmllm/sim/split_samples.hpp"
#include "orchmllm/sim/step.hpp"

namespace orch::sim {

/// What all steps of a run share.
struct StepModel {
  const Mllm& model;
  const std::vector<PhaseShape>& shapes;
  const Cluster& cluster;
  const Parallelism& parallelism;
  std::uint32_t micro_batch = 1;  ///< samples of a pipeline's micro-batch
  ExchangeMethod exchange = ExchangeMethod::all_to_all;
  NetworkModel network = NetworkModel::endpoints;
  bool padded = false;                  ///< LLM sequences are filled up to the longest of their micro-batch
  const SplitLengths* split = nullptr;  ///< set: plans may hold pieces of samples
};

/// Phase by phase, or as a pipeline: `instances` of the system, of which the plan's ranks are the first.
[[nodiscard]] StepWork step_work(const StepModel& step, const StepPlan& plan, std::uint32_t instances);

[[nodiscard]] PlayedStep play(const StepModel& step, const StepPlan& plan, const Conditions& conditions);

}  // namespace orch::sim
