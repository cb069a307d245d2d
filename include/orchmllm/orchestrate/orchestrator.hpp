// The global orchestrator: from a global batch's phase lengths to a step plan.
//
// Every phase gets an assignment of its own, from the sampled layout; encoders run in the model's order, so that a
// phase which takes others' outputs is planned when it is known where they will be. Outputs travel straight from the
// encoder's layout to that of the phase which it feeds (Π_M ∘ Π_E⁻¹), once forward, their gradients once back. What an
// item's move weighs: its raw input, its outputs and their gradients.
// Complexity: O(n log n) a phase. Deterministic: every rank that holds the lengths computes the same plan.
// Source: OrchMLLM (arXiv 2503.23830), MLLM global orchestrator.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/cost/shape.hpp"
#include "orchmllm/exchange/hierarchical.hpp"
#include "orchmllm/exchange/link_traffic.hpp"
#include "orchmllm/model/encoder_graph.hpp"
#include "orchmllm/model/phase_lengths.hpp"
#include "orchmllm/orchestrate/phase_problem.hpp"
#include "orchmllm/orchestrate/step_plan.hpp"

namespace orch {

struct PhaseOptions {
  Balancer balancer = Balancer::lpt;
  Granularity granularity = Granularity::sample;  ///< of encoders; the LLM's items are samples
  std::optional<PhaseCost> cost = std::nullopt;   ///< nothing = derived from the model's shape
};

enum class ExchangeSchedule : std::uint8_t { direct, hierarchical, automatic };

struct StepOptions {
  PhaseOptions encoders = {};
  PhaseOptions llm = {};
  std::map<std::string, PhaseOptions> phases = {};  ///< encoders by name, where they differ from the others
  /// Node-wise placement of phases balanced from scratch; empty = batches stay where the solver numbered them.
  Placer placer = {};
  double tolerance = 0.01;  ///< of movement-aware balancing: largest cost over the lower bound
  /// The LLM's layout follows the encoders' outputs; false: it is chosen as if they were where samples were drawn.
  bool joint = true;
  ExchangeSchedule schedule = ExchangeSchedule::direct;
  LinkRates rates = {};  ///< for ExchangeSchedule::automatic, which takes the schedule that is estimated to end sooner
};

namespace detail {

/// Items of one phase, in order of sample.
struct Items {
  std::vector<std::uint32_t> first{0};   ///< sample → its first item; one more entry than samples
  std::vector<std::uint32_t> sample_of;  ///< item → sample
  std::vector<std::uint32_t> length;     ///< item → tokens in the phase
  std::vector<std::uint32_t> output;     ///< item → tokens that leave the phase
  std::vector<std::uint32_t> position;   ///< item → place in its sample's LLM sequence
};

[[nodiscard]] inline Items encoder_items(const EncoderLengths& lengths, bool to_llm,
                                         std::span<const std::uint32_t> samples) {
  Items items;
  std::size_t units = 0;
  items.first.reserve(samples.size() + 1);
  for (const std::uint32_t sample : samples) {
    units += lengths.first[sample + 1] - lengths.first[sample];
    items.first.push_back(sample_count(units));
  }
  for (std::vector<std::uint32_t>* column : {&items.sample_of, &items.length, &items.output}) column->resize(units);
  items.position.resize(to_llm ? units : 0);
  for (std::uint32_t s = 0; s < samples.size(); ++s) {
    std::uint64_t unit = lengths.first[samples[s]];
    for (std::uint32_t item = items.first[s]; item < items.first[s + 1]; ++item, ++unit) {
      items.sample_of[item] = s;
      items.length[item] = lengths.unit_length[unit];
      items.output[item] = lengths.unit_llm_length[unit];
      if (to_llm) items.position[item] = lengths.unit_position[unit];
    }
  }
  return items;
}

[[nodiscard]] inline Items llm_items(const PhaseLengths& lengths, std::span<const std::uint32_t> samples) {
  Items items;
  items.first.resize(samples.size() + 1);
  items.sample_of.resize(samples.size());
  std::iota(items.first.begin(), items.first.end(), 0U);
  std::iota(items.sample_of.begin(), items.sample_of.end(), 0U);
  items.length.reserve(samples.size());
  for (const std::uint32_t sample : samples) items.length.push_back(lengths.llm_length[sample]);
  return items;
}

/// The first item of every group.
[[nodiscard]] inline std::vector<std::uint32_t> group_starts(const Items& items, Granularity granularity) {
  std::vector<std::uint32_t> starts;
  starts.reserve(items.sample_of.size() + 1);
  for (std::uint32_t i = 0; i < items.sample_of.size(); ++i) {
    if (granularity == Granularity::unit || i == 0 || items.sample_of[i] != items.sample_of[i - 1]) starts.push_back(i);
  }
  starts.push_back(static_cast<std::uint32_t>(items.sample_of.size()));
  return starts;
}

/// Groups and their costs; pieces are added by the caller. An Overflow names the sample (`samples`: place in the batch
/// → number) whose cost it is.
[[nodiscard]] inline PhaseProblem phase_problem(const Items& items, std::span<const std::uint32_t> starts,
                                                PhaseCost cost, std::span<const std::uint32_t> home_rank,
                                                std::span<const std::uint32_t> samples) {
  PhaseProblem problem{std::move(cost), {}, {}, {}};
  const ConvPackedCost* packed = std::get_if<ConvPackedCost>(&problem.cost);
  const ConvPackedCost lengths_alone{};
  problem.groups.reserve(starts.size());
  problem.home.reserve(starts.size());
  for (std::size_t g = 0; g + 1 < starts.size(); ++g) {
    const auto lengths = std::span(items.length).subspan(starts[g], starts[g + 1] - starts[g]);
    try {
      problem.groups.push_back((packed != nullptr ? *packed : lengths_alone).batch(lengths));
      (void)batch_cost(problem.cost, problem.groups.back());
    } catch (const Overflow& error) {
      throw Overflow("sample " + std::to_string(samples[items.sample_of[starts[g]]]) + ": " + error.what());
    }
    problem.home.push_back(home_rank[items.sample_of[starts[g]]]);
  }
  return problem;
}

/// Balances and places one phase; fills in all but layout.
inline void solve_phase(PhasePlan& plan, Items& items, const PhaseProblem& problem,
                        std::span<const std::uint32_t> starts, Balancer balancer, const Topology& topology,
                        const StepOptions& options) {
  const std::uint32_t ranks = topology.ranks();
  const std::vector<Cost> home_cost = problem.rank_costs(problem.home, ranks);
  plan.imbalance_before = balance::imbalance(home_cost);
  Assignment solved;
  switch (balancer) {
    case Balancer::home:
      solved = problem.stay(ranks);
      break;
    case Balancer::lpt:
    case Balancer::automatic:
      solved = problem.flat(ranks, balancer == Balancer::automatic);
      if (options.placer) problem.place(solved, topology, options.placer);
      break;
    case Balancer::movement:
      solved = problem.move(topology, options.tolerance);
      break;
  }
  // Items without tokens stay where they are, unless padding makes them cost where others are long.
  for (std::size_t g = 0; adds_up(problem.cost) && g < problem.groups.size(); ++g) {
    if (problem.groups[g].longest == 0) solved.rank_of[g] = problem.home[g];
  }
  solved.rank_cost = problem.rank_costs(solved.rank_of, ranks);
  // A layout that balancing does not improve stays as it is: nothing moves.
  if (solved.max_cost() >= balance::largest(home_cost)) {
    solved.rank_of = problem.home;
    solved.rank_cost = home_cost;
    solved.solver = "home";
  }
  plan.assignment = std::move(solved);
  std::vector<std::uint32_t> rank_of(items.sample_of.size());
  for (std::size_t g = 0; g + 1 < starts.size(); ++g) {
    std::fill(rank_of.begin() + starts[g], rank_of.begin() + starts[g + 1], plan.assignment.rank_of[g]);
  }
  plan.assignment.rank_of = std::move(rank_of);
  plan.sample_of = std::move(items.sample_of);
  plan.length = std::move(items.length);
  plan.output = items.output;
  plan.position = std::move(items.position);
}

/// Layout, and what follows from it.
inline void lay_out(PhasePlan& plan, std::uint32_t ranks) {
  plan.layout = layout(plan.assignment.rank_of, ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const auto items = plan.layout.items(rank);
    const bool empty = std::all_of(items.begin(), items.end(), [&](std::uint32_t i) { return plan.length[i] == 0; });
    if (empty) plan.empty_ranks.push_back(rank);
  }
  std::uint32_t last = ~std::uint32_t{0};
  for (std::size_t i = 0; i < plan.length.size(); ++i) {
    if (plan.length[i] == 0 || plan.sample_of[i] == last) continue;
    last = plan.sample_of[i];
    ++plan.nonempty;
  }
}

/// Throws InvalidInput for samples, home ranks or lengths that do not fit together.
inline void require_batch(const Mllm& model, const PhaseLengths& lengths, std::span<const std::uint32_t> samples,
                          std::span<const std::uint32_t> home_rank, std::uint32_t ranks) {
  if (samples.size() != home_rank.size()) {
    throw InvalidInput(std::to_string(samples.size()) + " samples, but home ranks for " +
                       std::to_string(home_rank.size()));
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i] >= lengths.samples()) {
      throw InvalidInput("sample " + std::to_string(samples[i]) + ", but there are lengths of " +
                         std::to_string(lengths.samples()) + " samples");
    }
    if (home_rank[i] >= ranks) {
      throw InvalidInput("the home of sample " + std::to_string(i) + " is rank " + std::to_string(home_rank[i]) +
                         ", but there are " + std::to_string(ranks) + " ranks");
    }
  }
  if (!samples.empty() && lengths.encoders.size() != model.encoders.size()) {
    throw InvalidInput("lengths of " + std::to_string(lengths.encoders.size()) + " encoders, but model " + model.name +
                       " has " + std::to_string(model.encoders.size()));
  }
}

/// What plan_step() works on.
class StepPlanner {
 public:
  StepPlanner(const Mllm& model, const PhaseLengths& lengths, StepPlan& plan, const StepOptions& options)
      : model_(model), lengths_(lengths), plan_(plan), options_(options), encoders_(model.encoders.size()) {
    const auto& [intra, inter] = options.rates.bandwidth;
    if (options.schedule == ExchangeSchedule::automatic && !(intra > 0 && inter > 0)) {
      throw InvalidInput("automatic exchanges need the bandwidths of both links, above 0");
    }
    for (const auto& [name, unused] : options.phases) {
      if (encoder_named(model, name) == encoders_) {
        throw InvalidInput("options for phase \"" + name + "\", but model " + model.name + " has no such encoder");
      }
    }
    for (std::size_t e = 0; e < encoders_; ++e) {
      const EncoderLengths none;
      const EncoderLengths& encoder = plan.samples.empty() ? none : lengths.encoders[e];
      items_.push_back(encoder_items(encoder, feeds_llm(model.encoders[e]), plan.samples));
    }
    items_.push_back(llm_items(lengths, plan.samples));
    plan.phases.resize(encoders_ + 1);
  }

  void run() {
    for (std::size_t phase = 0; phase <= encoders_; ++phase) plan_phase(phase);
    home_ = layout(plan_.home_rank, plan_.ranks());
    for (std::size_t phase = 0; phase <= encoders_; ++phase) add_input(phase);
    for (std::size_t from = 0; from < encoders_; ++from) {
      for (std::size_t to = from + 1; to <= encoders_; ++to) {
        if (feeds(model_.encoders[from], name(to))) add_output(from, to);
      }
    }
    count_losses();
  }

 private:
  [[nodiscard]] std::string_view name(std::size_t phase) const {
    return phase < encoders_ ? std::string_view(model_.encoders[phase].phase) : llm_phase;
  }

  [[nodiscard]] const PhaseOptions& phase_options(std::size_t phase) const {
    if (phase == encoders_) return options_.llm;
    const auto own = options_.phases.find(model_.encoders[phase].phase);
    return own == options_.phases.end() ? options_.encoders : own->second;
  }

  [[nodiscard]] PhaseCost phase_cost(std::size_t phase) const {
    const PhaseOptions& own = phase_options(phase);
    if (own.cost) return *own.cost;
    if (phase < encoders_) return encoder_cost(model_.encoders[phase]);
    return ConvPackedCost{.conv_alpha = 0, .packed = llm_cost(model_)};
  }

  void plan_phase(std::size_t phase) {
    const auto begin = std::chrono::steady_clock::now();
    PhasePlan& plan = plan_.phases[phase];
    plan.phase = name(phase);
    const PhaseOptions& own = phase_options(phase);
    const std::vector<std::uint32_t> starts = group_starts(items_[phase], own.granularity);
    try {
      PhaseProblem problem = phase_problem(items_[phase], starts, phase_cost(phase), plan_.home_rank, plan_.samples);
      add_pieces(phase, starts, problem);
      solve_phase(plan, items_[phase], problem, starts, own.balancer, plan_.topology, options_);
    } catch (const Overflow& error) {
      throw Overflow("phase " + plan.phase + ": " + error.what());
    }
    lay_out(plan, plan_.ranks());
    plan.solve_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  /// What waits for every group, and where: raw inputs and text at home, encoder outputs (twice: there, and gradients
  /// back) where they were made. What leaves a phase is taken to go home, where the LLM's layout begins.
  void add_pieces(std::size_t phase, std::span<const std::uint32_t> starts, PhaseProblem& problem) const {
    const bool encoder = phase < encoders_;
    const std::uint64_t in = encoder ? input_bytes_per_token(model_.encoders[phase]) : 0;
    const std::uint64_t out = encoder ? 2 * output_bytes_per_token(model_, model_.encoders[phase]) : token_bytes;
    const Items& items = items_[phase];
    problem.pieces.reserve(2 * starts.size());
    for (std::uint32_t g = 0; g + 1 < starts.size(); ++g) {
      std::uint64_t tokens = 0;
      std::uint64_t outputs = encoder ? 0 : lengths_.text[plan_.samples[g]];
      for (std::uint32_t i = starts[g]; encoder && i < starts[g + 1]; ++i) {
        tokens += items.length[i];
        outputs += items.output[i];
      }
      problem.pieces.push_back({g, problem.home[g], checked_add(checked_mul(in, tokens), checked_mul(out, outputs))});
      add_output_pieces(phase, g, starts[g], starts[g + 1], problem);
    }
  }

  /// Outputs of the encoders that feed `phase`, for items first … last − 1 of one sample.
  void add_output_pieces(std::size_t phase, std::uint32_t group, std::uint32_t first, std::uint32_t last,
                         PhaseProblem& problem) const {
    const Items& items = items_[phase];
    const std::uint32_t sample = items.sample_of[first];
    std::uint32_t item = items.first[sample];  // of `phase`, unit for unit of its producers
    for (std::size_t from = 0; from < phase; ++from) {
      const Encoder& producer = model_.encoders[from];
      if (!feeds(producer, name(phase))) continue;
      const std::uint64_t width = 2 * output_bytes_per_token(model_, producer);
      std::uint32_t begin = items_[from].first[sample];
      std::uint32_t end = items_[from].first[sample + 1];
      if (phase < encoders_) {
        const std::uint32_t base = item;
        item += end - begin;
        end = begin + (std::clamp(last, base, item) - base);
        begin += std::clamp(first, base, item) - base;
      }
      for (std::uint32_t u = begin; u < end; ++u) {
        const bool where_made = options_.joint || phase < encoders_;
        const std::uint32_t at = where_made ? plan_.phases[from].assignment.rank_of[u] : problem.home[group];
        problem.pieces.push_back({group, at, checked_mul(width, items_[from].output[u])});
      }
    }
  }

  void add_input(std::size_t phase) {
    const PhasePlan& plan = plan_.phases[phase];
    std::vector<Payload> payload;
    if (phase == encoders_) {
      std::vector<std::uint32_t> text;
      text.reserve(plan_.samples.size());
      for (const std::uint32_t sample : plan_.samples) text.push_back(lengths_.text[sample]);
      const std::vector<std::uint32_t> at_home = by_slot(home_, text);
      payload.push_back({{"token-ids", token_id_bytes, 1}, at_home});
      payload.push_back({{"labels", token_id_bytes, 1}, at_home});
      add_route(Route::home, phase, rearrangement(home_, plan.layout), std::move(payload));
    } else if (has_raw_input(model_.encoders[phase])) {
      const Layout home = layout(home_of_items(plan_, plan), plan_.ranks());
      const std::uint64_t elements = input_bytes_per_token(model_.encoders[phase]) / input_element_bytes;
      payload.push_back({{"input", input_element_bytes, elements}, by_slot(home, plan.length)});
      add_route(Route::home, phase, rearrangement(home, plan.layout), std::move(payload));
    }
  }

  /// Ranks where the items of `from` are needed in phase `to`.
  [[nodiscard]] std::vector<std::uint32_t> target_ranks(std::size_t from, std::size_t to) const {
    const PhasePlan& source = plan_.phases[from];
    const std::vector<std::uint32_t>& rank_of = plan_.phases[to].assignment.rank_of;
    std::vector<std::uint32_t> ranks;
    ranks.reserve(source.sample_of.size());
    for (std::uint32_t sample = 0; sample < plan_.samples.size(); ++sample) {
      std::uint32_t target = items_[to].first[sample];
      for (std::size_t earlier = 0; to < encoders_ && earlier < from; ++earlier) {
        if (!feeds(model_.encoders[earlier], name(to))) continue;
        target += items_[earlier].first[sample + 1] - items_[earlier].first[sample];
      }
      for (std::uint32_t u = items_[from].first[sample]; u < items_[from].first[sample + 1]; ++u) {
        ranks.push_back(rank_of[target]);
        if (to < encoders_) ++target;
      }
    }
    return ranks;
  }

  void add_output(std::size_t from, std::size_t to) {
    const Layout& before = plan_.phases[from].layout;
    const Layout after = layout(target_ranks(from, to), plan_.ranks());
    const std::uint64_t width = output_width(model_, model_.encoders[from]);
    std::vector<Payload> payload;
    payload.push_back({{"hidden", hidden_element_bytes, width}, by_slot(before, items_[from].output)});
    add_route(static_cast<std::uint32_t>(from), to, rearrangement(before, after), std::move(payload));
  }

  void add_route(std::uint32_t from, std::size_t to, Rearrangement moves, std::vector<Payload> payload) {
    Route route{from, static_cast<std::uint32_t>(to), exchange_plan(std::move(moves), std::move(payload)), {}};
    if (options_.schedule != ExchangeSchedule::direct) {
      HierarchicalExchange stages = hierarchical(route.exchange, plan_.topology);
      if (options_.schedule == ExchangeSchedule::hierarchical || sooner(stages, route.exchange)) {
        route.stages = std::move(stages);
      }
    }
    plan_.routes.push_back(std::move(route));
  }

  [[nodiscard]] bool sooner(const HierarchicalExchange& stages, const ExchangePlan& direct) const {
    return nanoseconds(link_traffic(stages, plan_.topology, options_.rates), options_.rates) <
           nanoseconds(link_traffic(direct, plan_.topology, options_.rates), options_.rates);
  }

  void count_losses() {
    plan_.loss = loss_counts(plan_.llm(), plan_.ranks());
    for (std::size_t i = 0; i < plan_.samples.size(); ++i) {
      plan_.loss.supervised[plan_.llm().assignment.rank_of[i]] += lengths_.supervised[plan_.samples[i]];
    }
  }

  static constexpr std::uint64_t input_element_bytes = 2;           ///< pixels and features in 16 bits
  static constexpr std::uint64_t hidden_element_bytes = 2;          ///< hidden states in 16 bits
  static constexpr std::uint64_t token_bytes = 2 * token_id_bytes;  ///< a token's id and its label

  const Mllm& model_;
  const PhaseLengths& lengths_;
  StepPlan& plan_;
  const StepOptions& options_;
  std::size_t encoders_;
  std::vector<Items> items_;  ///< phase by phase; what moved into the plan is empty here
  Layout home_;               ///< of samples
};

}  // namespace detail

/// `samples[i]` is an index into `lengths`; `home_rank[i]` the rank that drew it. Throws InvalidInput, Overflow.
[[nodiscard]] inline StepPlan plan_step(const Mllm& model, const PhaseLengths& lengths,
                                        std::vector<std::uint32_t> samples, std::vector<std::uint32_t> home_rank,
                                        const Topology& topology, const StepOptions& options = {}) {
  validate(model);
  detail::require_batch(model, lengths, samples, home_rank, topology.ranks());
  StepPlan plan{topology, std::move(samples), std::move(home_rank), {}, {}, {}, 0};
  detail::StepPlanner(model, lengths, plan, options).run();
  plan.hash = plan.fingerprint();
  return plan;
}

/// Home ranks of a global batch of ranks · batch samples: consecutive runs of `batch`.
[[nodiscard]] inline std::vector<std::uint32_t> home_ranks(std::uint32_t ranks, std::uint32_t batch) {
  std::vector<std::uint32_t> home(std::size_t{ranks} * batch);
  for (std::size_t i = 0; i < home.size(); ++i) home[i] = static_cast<std::uint32_t>(i / batch);
  return home;
}

}  // namespace orch
