// Strategies: what is balanced, how samples are drawn, and which program a step runs.
//
//   none                every sample is processed where it was sampled
//   pre-balance         batches are drawn from samples sorted by LLM tokens, and dealt out evenly; nothing moves after
//   llm-only            the LLM phase is balanced, encoders are not (what balancing before sampling can reach)
//   megatron            tensor and pipeline parallel, encoders on the first stage, nothing balanced
//   lpt                 every phase is balanced by LPT; batches stay on the ranks that the solver numbered (ablation)
//   orchmllm            every phase is balanced by LPT, batches are placed node by node, encoder outputs go straight to
//                       the LLM's layout (the published method)
//   orchmllm-allgather  the same, but every rank gets all outputs (its ablation)
//   movement            every phase is balanced within 1 % of its bound, moving as little as possible
//   movement+split      the same, after samples above a rank's fair share have been cut into context-parallel pieces
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/sim/step.hpp"

namespace orch::sim {

struct Strategy {
  std::string name;
  StepOptions options;
  bool sorted_batches = false;  ///< the sampler draws samples of like LLM length together
  bool pipelined = false;       ///< where the run does not say how, a pipeline is chosen
  bool splits = false;          ///< long samples are spread over ranks
  ExchangeMethod exchange = ExchangeMethod::all_to_all;

  /// Whether any phase leaves the sampled layout.
  [[nodiscard]] bool balances() const {
    return options.encoders.balancer != Balancer::home || options.llm.balancer != Balancer::home;
  }
};

[[nodiscard]] const std::vector<Strategy>& strategies();
/// "none, …, movement+split"
[[nodiscard]] std::string strategy_names();
/// Throws InvalidInput that lists the known names.
[[nodiscard]] const Strategy& strategy(const std::string& name);

}  // namespace orch::sim
