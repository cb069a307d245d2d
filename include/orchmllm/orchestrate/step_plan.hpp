// Step plan: everything that ranks need to run one training step on a global batch, as plain data.
//
// Per phase an assignment, the rearrangement from the sampled layout, and the exchanges: raw inputs travel from home to
// the phase's layout before the step, encoder outputs travel straight from the encoder's layout to the LLM's during
// it. The backward pass uses the inverse of every output exchange. Executors and the simulator never decide anything.
// Units: costs as in cost/, elements are tokens, times are seconds.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/exchange/exchange_plan.hpp"
#include "orchmllm/exchange/rearrangement.hpp"

namespace orch {

struct PhasePlan {
  std::string phase;
  Assignment assignment;
  std::uint64_t nonempty = 0;          ///< samples with at least one token in this phase
  double imbalance_before = 1;         ///< max / mean of the sampled layout
  Rearrangement from_home;             ///< Π of this phase
  ExchangePlan input;                  ///< raw inputs, home → this phase
  std::optional<ExchangePlan> output;  ///< encoders: outputs, this phase → LLM
  double solve_seconds = 0;            ///< balancing alone; not part of the plan's identity
};

struct StepPlan {
  std::uint32_t ranks = 0;
  std::vector<std::uint32_t> samples;    ///< global batch: indices into the trace
  std::vector<std::uint32_t> home_rank;  ///< sample of the global batch → rank that sampled it
  std::vector<PhasePlan> phases;         ///< encoders in the model's order, then the LLM

  [[nodiscard]] const PhasePlan& llm() const { return phases.back(); }
  [[nodiscard]] std::span<const PhasePlan> encoders() const { return std::span(phases).first(phases.size() - 1); }

  /// Equal on two ranks exactly if both would do the same step.
  [[nodiscard]] std::uint64_t fingerprint() const {
    Fingerprint print;
    print.add(ranks)
        .add_all(std::span<const std::uint32_t>(samples))
        .add_all(std::span<const std::uint32_t>(home_rank));
    for (const PhasePlan& phase : phases) print.add_bytes(phase.phase).add(phase.assignment.fingerprint());
    return print.value();
  }
};

}  // namespace orch
