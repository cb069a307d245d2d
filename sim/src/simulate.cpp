#include "orchmllm/sim/simulate.hpp"

#include <fmt/format.h>

#include "orchmllm/base/error.hpp"
#include "orchmllm/base/hash.hpp"
#include "orchmllm/orchestrate/sampler.hpp"
#include "orchmllm/placement/placement.hpp"

namespace orch::sim {

Strategy strategy(const std::string& name) {
  const auto placer = [](const TrafficMatrix& bytes, const Topology& topology) {
    return placement::place(bytes, topology);
  };
  const auto options = [&](Balancer encoders, Balancer llm) {
    return StepOptions{.encoders = {.balancer = encoders}, .llm = {.balancer = llm}, .placer = placer};
  };
  const StepOptions home = options(Balancer::home, Balancer::home);
  const StepOptions llm_only = options(Balancer::home, Balancer::lpt);
  const StepOptions published = options(Balancer::lpt, Balancer::lpt);
  const StepOptions movement = options(Balancer::movement, Balancer::movement);
  const std::vector<Strategy> known{
      {"none", home}, {"llm-only", llm_only}, {"orchmllm", published}, {"movement", movement}};
  std::string names;
  for (const Strategy& candidate : known) {
    if (candidate.name == name) return candidate;
    names += (names.empty() ? "" : ", ") + candidate.name;
  }
  throw InvalidInput(fmt::format("unknown strategy \"{}\", expected one of {}", name, names));
}

namespace {

/// Adds one step's figures, still as sums.
void add_step(StrategyResult& sum, const StepPlan& plan, const StepResult& step, std::uint32_t index) {
  sum.step_seconds += step.seconds;
  sum.idle_fraction += step.busy_seconds;
  sum.exchange_seconds += step.exchange_seconds;
  sum.exchange_intra_node_bytes += static_cast<double>(step.output_intra_node_bytes);
  sum.exchange_inter_node_bytes += static_cast<double>(step.output_inter_node_bytes);
  sum.input_intra_node_bytes += static_cast<double>(step.input_intra_node_bytes);
  sum.input_inter_node_bytes += static_cast<double>(step.input_inter_node_bytes);
  sum.mfu += step.model_flops;
  sum.tokens_per_second_per_gpu += step.tokens;
  sum.phases.resize(plan.phases.size());
  sum.breakdown.compute.resize(plan.phases.size(), 0);
  for (std::size_t phase = 0; phase < plan.phases.size(); ++phase) {
    sum.breakdown.compute[phase] += step.breakdown.compute[phase];
  }
  sum.breakdown.optimizer += step.breakdown.optimizer;
  sum.breakdown.exposed_exchange += step.breakdown.exposed_exchange;
  sum.breakdown.exposed_collectives += step.breakdown.exposed_collectives;
  sum.breakdown.waiting += step.breakdown.waiting;
  for (std::size_t phase = 0; phase < plan.phases.size(); ++phase) {
    PhaseSummary& summary = sum.phases[phase];
    summary.phase = plan.phases[phase].phase;
    summary.imbalance += plan.phases[phase].assignment.imbalance();
    summary.gap += plan.phases[phase].assignment.gap();
    summary.idle_fraction += step.phases[phase].idle_fraction();
    sum.plan_seconds += plan.phases[phase].solve_seconds;
  }
  if (index == 0 || step.peak_memory.total() > sum.peak_memory.total()) {
    sum.peak_memory = step.peak_memory;
    sum.peak_rank = step.peak_rank;
    sum.peak_step = index;
  }
  sum.steps.push_back(step);
}

/// Turns sums into means and rates.
void finish(StrategyResult& sum, const Cluster& cluster, const Configuration& configuration) {
  const double steps = configuration.steps;
  const double gpu_seconds = sum.step_seconds * configuration.ranks;
  sum.mfu /= gpu_seconds * cluster.peak_flops;
  sum.tokens_per_second_per_gpu /= gpu_seconds;
  sum.idle_fraction = 1 - sum.idle_fraction / sum.step_seconds;
  for (double* value : {&sum.step_seconds, &sum.exchange_seconds, &sum.plan_seconds, &sum.exchange_intra_node_bytes,
                        &sum.exchange_inter_node_bytes, &sum.input_intra_node_bytes, &sum.input_inter_node_bytes}) {
    *value /= steps;
  }
  for (double* value : {&sum.breakdown.optimizer, &sum.breakdown.exposed_exchange, &sum.breakdown.exposed_collectives,
                        &sum.breakdown.waiting}) {
    *value /= steps;
  }
  for (double& value : sum.breakdown.compute) value /= steps;
  for (PhaseSummary& phase : sum.phases) {
    phase.imbalance /= steps;
    phase.gap /= steps;
    phase.idle_fraction /= steps;
  }
  sum.oom = sum.peak_memory.total() > cluster.memory_bytes;
}

}  // namespace

StrategyResult simulate(const Mllm& model, const PhaseLengths& lengths, const Cluster& cluster,
                        const Configuration& configuration, const Strategy& strategy, const Progress& progress,
                        const Observe& observe) {
  StrategyResult result;
  result.name = strategy.name;
  Sampler sampler(lengths.samples(), configuration.seed);
  Fingerprint hash;
  const std::vector<std::uint32_t> home = home_ranks(configuration.ranks, configuration.batch);
  const Topology topology = uniform_topology(configuration.ranks, cluster.gpus_per_node);
  const std::vector<PhaseShape> shapes = phase_shapes(model);
  StepOptions options = strategy.options;
  options.rates = cluster.exchange_rates();
  for (std::uint32_t step = 0; step < configuration.steps; ++step) {
    const StepPlan plan = plan_step(model, lengths, sampler.next(home.size()), home, topology, options);
    hash.add(plan.hash);
    const PlayedStep played = play_step(plan, shapes, cluster, configuration.sharding);
    add_step(result, plan, played.result, step);
    if (observe) observe(step, plan, played);
    if (progress) progress(step + 1, configuration.steps);
  }
  result.plan_hash = hash.value();
  finish(result, cluster, configuration);
  return result;
}

}  // namespace orch::sim
