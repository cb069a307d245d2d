// The global orchestrator: from a global batch's phase lengths to a step plan.
//
// Every phase gets an assignment of its own, all from the sampled layout; encoder outputs are routed by the composition
// Π_LLM ∘ Π_encoder⁻¹. A phase stays at home, or is balanced from scratch (LPT and its relatives) and then placed node
// by node where its bytes are, or is balanced by moving as little as possible. What a sample's move weighs: its raw
// input, and its encoder outputs once forward and their gradients once back. Complexity: O(n log n) a phase.
// Deterministic: every rank that holds the lengths computes the same plan. Source: OrchMLLM (arXiv 2503.23830), MLLM
// global orchestrator.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "orchmllm/balance/conv_packed.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/balance/movement.hpp"
#include "orchmllm/cost/shape.hpp"
#include "orchmllm/model/phase_lengths.hpp"
#include "orchmllm/orchestrate/step_plan.hpp"
#include "orchmllm/placement/placement.hpp"

namespace orch {

enum class Balancer : std::uint8_t {
  home,      ///< every sample where it was sampled
  lpt,       ///< flattest, whatever it moves
  movement,  ///< within the tolerance of the bound, moving as little as possible
};

struct StepOptions {
  Balancer encoders = Balancer::lpt;
  Balancer llm = Balancer::lpt;
  /// Node-wise placement of phases balanced by LPT; nothing = batches stay where the solver numbered them.
  std::optional<PlacementObjective> placement = std::nullopt;
  std::uint32_t ranks_per_node = 8;
  double tolerance = 0.01;  ///< of movement-aware balancing: largest cost over the lower bound
};

namespace detail {

/// What one phase asks the orchestrator to solve: sample → batch, under one cost.
struct PhaseProblem {
  ConvPackedCost cost;
  std::vector<ConvPackedCost::Batch> samples;

  [[nodiscard]] Assignment lpt(std::uint32_t ranks) const {
    if (cost.conv_alpha != 0) return balance::conv_packed(samples, ranks, cost);
    return balance::greedy(alone(), ranks);
  }

  [[nodiscard]] Assignment move(std::span<const std::uint64_t> bytes, std::span<const std::uint32_t> home_rank,
                                const Topology& topology, double tolerance) const {
    return balance::movement(samples, cost, bytes, home_rank, topology, {.tolerance = tolerance}).assignment;
  }

  /// True costs and a true bound for any assignment of these samples.
  void certify(Assignment& assignment) const {
    const std::vector<Cost> costs = alone();
    assignment.rank_cost = balance::conv_packed_rank_costs(samples, assignment.rank_of, assignment.ranks, cost);
    assignment.lower_bound = balance::lower_bound(costs, descending_order(costs), assignment.ranks);
  }

  /// The sampled layout with its true costs and the same bound as a solution.
  [[nodiscard]] Assignment stay(std::span<const std::uint32_t> home_rank, std::uint32_t ranks) const {
    Assignment home{ranks, std::vector<std::uint32_t>(home_rank.begin(), home_rank.end()), {}, 0, "home"};
    certify(home);
    return home;
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

/// Bytes of every sample that reach a phase, from the ranks that hold them: raw inputs, and for the LLM encoder
/// outputs.
struct PhaseTraffic {
  std::vector<std::uint32_t> from;    ///< rank, per piece
  std::vector<std::uint32_t> sample;  ///< whose piece it is
  std::vector<std::uint64_t> bytes;

  void add(std::span<const std::uint32_t> ranks, std::span<const std::uint64_t> elements, std::uint64_t element_bytes) {
    for (std::uint32_t i = 0; i < ranks.size(); ++i) {
      if (elements[i] == 0) continue;
      from.push_back(ranks[i]);
      sample.push_back(i);
      bytes.push_back(checked_mul(elements[i], element_bytes));
    }
  }
  [[nodiscard]] std::vector<std::uint64_t> by_sample(std::size_t samples) const {
    std::vector<std::uint64_t> sum(samples, 0);
    for (std::size_t piece = 0; piece < bytes.size(); ++piece) sum[sample[piece]] += bytes[piece];
    return sum;
  }
};

/// Renames the ranks of a balanced assignment so that batches meet their bytes.
inline void place_batches(Assignment& assignment, const PhaseTraffic& traffic, const Topology& topology,
                          PlacementObjective objective) {
  std::vector<std::uint32_t> to(traffic.sample.size());
  for (std::size_t piece = 0; piece < to.size(); ++piece) to[piece] = assignment.rank_of[traffic.sample[piece]];
  const Placement placed =
      placement::place(traffic_matrix(traffic.from, to, traffic.bytes, assignment.ranks), topology, objective);
  for (std::uint32_t& rank : assignment.rank_of) rank = placed.rank_of[rank];
}

[[nodiscard]] inline PhasePlan phase_plan(std::string phase, const PhaseProblem& problem, Balancer balancer,
                                          const PhaseTraffic& traffic, std::span<const std::uint32_t> home_rank,
                                          const Topology& topology, const StepOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const Assignment home = problem.stay(home_rank, topology.ranks());
  PhasePlan plan;
  plan.phase = std::move(phase);
  plan.imbalance_before = home.imbalance();
  plan.assignment = home;
  if (balancer == Balancer::lpt) {
    plan.assignment = problem.lpt(topology.ranks());
    if (options.placement) place_batches(plan.assignment, traffic, topology, *options.placement);
  } else if (balancer == Balancer::movement) {
    plan.assignment = problem.move(traffic.by_sample(home_rank.size()), home_rank, topology, options.tolerance);
  }
  // A layout that balancing does not improve stays as it is: nothing moves. Samples without this modality stay too.
  if (plan.assignment.max_cost() >= home.max_cost()) plan.assignment = home;
  for (std::size_t i = 0; i < problem.samples.size(); ++i) {
    if (problem.samples[i].units == 0) plan.assignment.rank_of[i] = home_rank[i];
  }
  problem.certify(plan.assignment);
  plan.solve_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const auto& sample : problem.samples) plan.nonempty += sample.units > 0 && sample.longest > 0 ? 1 : 0;
  return plan;
}

}  // namespace detail

/// `samples[i]` is an index into `lengths`; `home_rank[i]` the rank that sampled it. Throws Overflow, InvalidInput.
[[nodiscard]] inline StepPlan plan_step(const Mllm& model, const PhaseLengths& lengths,
                                        std::vector<std::uint32_t> samples, std::vector<std::uint32_t> home_rank,
                                        std::uint32_t ranks, const StepOptions& options = {}) {
  balance::require_ranks(ranks);
  const Topology topology = uniform_topology(ranks, options.ranks_per_node);
  StepPlan plan{ranks, std::move(samples), std::move(home_rank), {}};
  const std::size_t n = plan.samples.size();
  const std::size_t encoders = model.encoders.size();
  const auto per_sample = [&](auto&& elements) {
    std::vector<std::uint64_t> result(n);
    for (std::size_t i = 0; i < n; ++i) result[i] = elements(plan.samples[i]);
    return result;
  };
  const std::vector<std::uint64_t> text = per_sample([&](std::uint32_t sample) { return lengths.text[sample]; });
  std::vector<std::vector<std::uint64_t>> inputs(encoders);   // encoder tokens
  std::vector<std::vector<std::uint64_t>> outputs(encoders);  // LLM tokens

  detail::PhaseTraffic to_llm;
  to_llm.add(plan.home_rank, text, token_id_bytes);
  for (std::size_t e = 0; e < encoders; ++e) {
    const EncoderLengths& encoder = lengths.encoders[e];
    inputs[e] = per_sample([&](std::uint32_t sample) { return encoder.tokens(sample); });
    outputs[e] = per_sample([&](std::uint32_t sample) { return encoder.llm_length[sample]; });
    detail::PhaseTraffic to_encoder;
    to_encoder.add(plan.home_rank, inputs[e], input_bytes_per_token(model.encoders[e]));
    to_encoder.add(plan.home_rank, outputs[e], 2 * output_bytes_per_token(model));
    plan.phases.push_back(detail::phase_plan(model.encoders[e].phase,
                                             detail::encoder_problem(model.encoders[e], encoder, plan.samples),
                                             options.encoders, to_encoder, plan.home_rank, topology, options));
    to_llm.add(plan.phases[e].assignment.rank_of, outputs[e], 2 * output_bytes_per_token(model));
  }
  plan.phases.push_back(detail::phase_plan("llm", detail::llm_problem(model, lengths, plan.samples), options.llm,
                                           to_llm, plan.home_rank, topology, options));

  const Layout home = layout(plan.home_rank, ranks);
  PhasePlan& llm = plan.phases.back();
  llm.from_home = rearrangement(home, layout(llm.assignment.rank_of, ranks));
  llm.input = exchange_plan(llm.from_home, detail::by_slot(home, text), token_id_bytes);
  for (std::size_t e = 0; e < encoders; ++e) {
    PhasePlan& phase = plan.phases[e];
    const Layout own = layout(phase.assignment.rank_of, ranks);
    phase.from_home = rearrangement(home, own);
    phase.input =
        exchange_plan(phase.from_home, detail::by_slot(home, inputs[e]), input_bytes_per_token(model.encoders[e]));
    phase.output = exchange_plan(compose(llm.from_home, inverse(phase.from_home)), detail::by_slot(own, outputs[e]),
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
