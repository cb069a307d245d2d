// The global orchestrator: from a global batch's phase lengths to a step plan.
//
// Every phase gets an assignment of its own (or stays at home), all from the sampled layout; encoder outputs are routed
// by the composition Π_LLM ∘ Π_encoder⁻¹. Complexity: O(n log n) a phase. Deterministic: every rank that holds the
// lengths computes the same plan. Source: OrchMLLM (arXiv 2503.23830), MLLM global orchestrator.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "orchmllm/balance/conv_packed.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/cost/shape.hpp"
#include "orchmllm/model/phase_lengths.hpp"
#include "orchmllm/orchestrate/step_plan.hpp"

namespace orch {

/// Which phases leave the sampled layout.
struct Balancing {
  bool encoders = true;
  bool llm = true;
};

namespace detail {

/// What one phase asks the orchestrator to solve: sample → batch, under one cost.
struct PhaseProblem {
  ConvPackedCost cost;
  std::vector<ConvPackedCost::Batch> samples;

  [[nodiscard]] Assignment solve(std::uint32_t ranks) const {
    if (cost.conv_alpha != 0) return balance::conv_packed(samples, ranks, cost);
    return balance::greedy(alone(), ranks);
  }

  /// The sampled layout with its true costs and the same bound as a solution.
  [[nodiscard]] Assignment stay(std::span<const std::uint32_t> home_rank, std::uint32_t ranks) const {
    const std::vector<Cost> costs = alone();
    return {ranks, std::vector<std::uint32_t>(home_rank.begin(), home_rank.end()),
            balance::conv_packed_rank_costs(samples, home_rank, ranks, cost),
            balance::lower_bound(costs, descending_order(costs), ranks), "home"};
  }

 private:
  [[nodiscard]] std::vector<Cost> alone() const {
    std::vector<Cost> costs(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) costs[i] = cost(samples[i]);
    return costs;
  }
};

[[nodiscard]] inline PhaseProblem encoder_problem(const Encoder& encoder, const EncoderLengths& lengths,
                                                  std::span<const std::uint32_t> samples) {
  PhaseProblem problem{encoder_cost(encoder), {}};
  problem.samples.reserve(samples.size());
  for (const std::uint32_t sample : samples) problem.samples.push_back(problem.cost.batch(lengths.units(sample)));
  return problem;
}

[[nodiscard]] inline PhaseProblem llm_problem(const Mllm& model, const PhaseLengths& lengths,
                                              std::span<const std::uint32_t> samples) {
  PhaseProblem problem{{.conv_alpha = 0, .packed = llm_cost(model)}, {}};
  problem.samples.reserve(samples.size());
  for (const std::uint32_t sample : samples) {
    const std::uint32_t length = lengths.llm_length[sample];
    problem.samples.push_back(problem.cost.batch(std::span(&length, 1)));
  }
  return problem;
}

/// Elements of every slot of a layout, from elements of every sample.
[[nodiscard]] inline std::vector<std::uint64_t> by_slot(const Layout& layout,
                                                        std::span<const std::uint64_t> of_sample) {
  std::vector<std::uint64_t> elements(of_sample.size());
  for (std::size_t sample = 0; sample < of_sample.size(); ++sample)
    elements[layout.slot_of[sample]] = of_sample[sample];
  return elements;
}

[[nodiscard]] inline PhasePlan phase_plan(std::string phase, const PhaseProblem& problem, bool balanced,
                                          std::span<const std::uint32_t> home_rank, std::uint32_t ranks) {
  const auto begin = std::chrono::steady_clock::now();
  const Assignment home = problem.stay(home_rank, ranks);
  PhasePlan plan;
  plan.phase = std::move(phase);
  plan.imbalance_before = home.imbalance();
  plan.assignment = balanced ? problem.solve(ranks) : home;
  // A layout that balancing does not improve stays as it is: nothing moves. Samples without this modality stay too.
  if (plan.assignment.max_cost() >= home.max_cost()) plan.assignment = home;
  for (std::size_t i = 0; i < problem.samples.size(); ++i) {
    if (problem.samples[i].units == 0) plan.assignment.rank_of[i] = home_rank[i];
  }
  plan.solve_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const auto& sample : problem.samples) plan.nonempty += sample.units > 0 && sample.longest > 0 ? 1 : 0;
  return plan;
}

}  // namespace detail

/// `samples[i]` is an index into `lengths`; `home_rank[i]` the rank that sampled it. Throws Overflow, InvalidInput.
[[nodiscard]] inline StepPlan plan_step(const Mllm& model, const PhaseLengths& lengths,
                                        std::vector<std::uint32_t> samples, std::vector<std::uint32_t> home_rank,
                                        std::uint32_t ranks, Balancing balancing = {}) {
  balance::require_ranks(ranks);
  StepPlan plan{ranks, std::move(samples), std::move(home_rank), {}};
  for (std::size_t e = 0; e < model.encoders.size(); ++e) {
    plan.phases.push_back(detail::phase_plan(
        model.encoders[e].phase, detail::encoder_problem(model.encoders[e], lengths.encoders[e], plan.samples),
        balancing.encoders, plan.home_rank, ranks));
  }
  plan.phases.push_back(detail::phase_plan("llm", detail::llm_problem(model, lengths, plan.samples), balancing.llm,
                                           plan.home_rank, ranks));

  const Layout home = layout(plan.home_rank, ranks);
  std::vector<std::uint64_t> tokens(plan.samples.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = lengths.text[plan.samples[i]];
  PhasePlan& llm = plan.phases.back();
  llm.from_home = rearrangement(home, layout(llm.assignment.rank_of, ranks));
  llm.input = exchange_plan(llm.from_home, detail::by_slot(home, tokens), token_id_bytes);

  for (std::size_t e = 0; e < model.encoders.size(); ++e) {
    const EncoderLengths& encoder = lengths.encoders[e];
    PhasePlan& phase = plan.phases[e];
    const Layout own = layout(phase.assignment.rank_of, ranks);
    phase.from_home = rearrangement(home, own);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = encoder.tokens(plan.samples[i]);
    phase.input =
        exchange_plan(phase.from_home, detail::by_slot(home, tokens), input_bytes_per_token(model.encoders[e]));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = encoder.llm_length[plan.samples[i]];
    phase.output = exchange_plan(compose(llm.from_home, inverse(phase.from_home)), detail::by_slot(own, tokens),
                                 output_bytes_per_token(model));
  }
  return plan;
}

/// Home ranks of a global batch of ranks · batch samples: consecutive runs of `batch`.
[[nodiscard]] inline std::vector<std::uint32_t> home_ranks(std::uint32_t ranks, std::uint32_t batch) {
  std::vector<std::uint32_t> home(std::size_t{ranks} * batch);
  for (std::size_t i = 0; i < home.size(); ++i) home[i] = static_cast<std::uint32_t>(i / batch);
  return home;
}

}  // namespace orch
