// Step plan: everything that ranks need to run one training step on a global batch, as plain data.
//
// A phase processes items: an encoder its units (images, clips), the LLM samples. Per phase the plan holds the items,
// their assignment to ranks and the layout; routes say what travels: raw inputs from where samples were drawn to the
// phase's layout, before the step; encoder outputs straight from the encoder's layout to that of the phase which it
// feeds, during it. The backward pass takes the inverse of every output route. Executors and the simulator never decide
// anything. Units: costs as in cost/, lengths are tokens, times are seconds.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/exchange/exchange_plan.hpp"
#include "orchmllm/exchange/hierarchical.hpp"
#include "orchmllm/exchange/rearrangement.hpp"
#include "orchmllm/placement/topology.hpp"

namespace orch {

struct PhasePlan {
  std::string phase;
  std::vector<std::uint32_t> sample_of;  ///< item → sample of the global batch, ascending
  std::vector<std::uint32_t> length;     ///< item → tokens in this phase
  std::vector<std::uint32_t> output;     ///< encoders: item → tokens that leave it
  /// Encoders that feed the LLM: item → where its first token stands in its sample's LLM sequence; text fills the rest.
  std::vector<std::uint32_t> position;
  Assignment assignment;  ///< item → rank
  Layout layout;
  std::uint64_t nonempty = 0;              ///< samples with at least one token in this phase
  double imbalance_before = 1;             ///< max / mean where samples were drawn
  std::vector<std::uint32_t> empty_ranks;  ///< without a token: trainers run a dummy there, so that all ranks take part
  double solve_seconds = 0;                ///< balancing and placement; not part of the plan's identity
};

/// Raw inputs of a phase, or what one phase hands to another.
struct Route {
  static constexpr std::uint32_t home = ~std::uint32_t{0};

  std::uint32_t from = home;                   ///< phase, or home: where samples were drawn
  std::uint32_t to = 0;                        ///< phase
  ExchangePlan exchange;                       ///< items are those of `from`, or for raw inputs those of `to`
  std::optional<HierarchicalExchange> stages;  ///< set: the exchange goes node first

  [[nodiscard]] bool is_input() const { return from == home; }
};

/// What losses are divided by: global sums, never a rank's own.
struct LossCounts {
  std::vector<std::uint64_t> tokens;      ///< rank → LLM tokens
  std::vector<std::uint64_t> supervised;  ///< rank → tokens that bear loss
  std::vector<std::uint64_t> samples;     ///< rank → samples

  [[nodiscard]] static std::uint64_t total(std::span<const std::uint64_t> by_rank) {
    return std::accumulate(by_rank.begin(), by_rank.end(), std::uint64_t{0});
  }
};

struct StepPlan {
  Topology topology;
  std::vector<std::uint32_t> samples;    ///< global batch: indices into the trace
  std::vector<std::uint32_t> home_rank;  ///< sample of the global batch → rank that drew it
  std::vector<PhasePlan> phases;         ///< encoders in the model's order, then the LLM
  std::vector<Route> routes;             ///< raw inputs phase by phase, then outputs by (from, to)
  LossCounts loss;                       ///< in the LLM's layout
  std::uint64_t hash = 0;                ///< fingerprint(), kept by plan_step()

  [[nodiscard]] std::uint32_t ranks() const { return topology.ranks(); }
  [[nodiscard]] const PhasePlan& llm() const { return phases.back(); }
  [[nodiscard]] std::span<const PhasePlan> encoders() const { return std::span(phases).first(phases.size() - 1); }

  /// Equal on two ranks exactly if both would do the same step.
  [[nodiscard]] std::uint64_t fingerprint() const {
    const auto words = [](const std::vector<std::uint32_t>& v) { return std::span<const std::uint32_t>(v); };
    Fingerprint print;
    print.add_all(words(topology.first_rank)).add(topology.rails);
    print.add_all(words(samples)).add_all(words(home_rank));
    for (const PhasePlan& phase : phases) {
      print.add_bytes(phase.phase).add_all(words(phase.sample_of)).add_all(words(phase.length));
      print.add_all(words(phase.position)).add_all(words(phase.assignment.rank_of));
    }
    for (const Route& route : routes) {
      print.add(route.from).add(route.to).add(route.stages ? 1 : 0);
      for (const Payload& payload : route.exchange.payload) {
        print.add_bytes(payload.field.name).add(payload.field.element_bytes).add(payload.field.elements_per_length);
        print.add_all(words(payload.length));
      }
    }
    print.add_all(std::span<const std::uint64_t>(loss.supervised));
    return print.value();
  }
};

/// item of `phase` → rank that drew its sample.
[[nodiscard]] inline std::vector<std::uint32_t> home_of_items(const StepPlan& plan, const PhasePlan& phase) {
  std::vector<std::uint32_t> ranks;
  ranks.reserve(phase.sample_of.size());
  for (const std::uint32_t sample : phase.sample_of) ranks.push_back(plan.home_rank[sample]);
  return ranks;
}

/// What the LLM's layout says of losses: tokens and samples by rank; supervised tokens are 0.
[[nodiscard]] inline LossCounts loss_counts(const PhasePlan& llm, std::uint32_t ranks) {
  LossCounts counts{std::vector<std::uint64_t>(ranks, 0), std::vector<std::uint64_t>(ranks, 0),
                    std::vector<std::uint64_t>(ranks, 0)};
  for (std::size_t i = 0; i < llm.length.size(); ++i) {
    counts.tokens[llm.assignment.rank_of[i]] += llm.length[i];
    ++counts.samples[llm.assignment.rank_of[i]];
  }
  return counts;
}

/// What a route puts on links, in one direction.
[[nodiscard]] inline Traffic traffic(const Route& route, const Topology& topology) {
  return route.stages ? traffic(*route.stages, topology) : traffic(route.exchange, topology);
}

}  // namespace orch
