#include "orchmllm/sim/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "choose_pipeline.hpp"
#include "orchmllm/base/error.hpp"
#include "orchmllm/base/hash.hpp"
#include "orchmllm/cost/shape.hpp"
#include "orchmllm/orchestrate/sampler.hpp"
#include "step_model.hpp"

namespace orch::sim {

std::vector<std::string> StrategyResult::phase_names() const {
  std::vector<std::string> names;
  for (const PhaseSummary& phase : phases) names.push_back(phase.phase);
  return names;
}

double StrategyResult::step_quantile(double share) const {
  std::vector<double> seconds;
  for (const StepResult& step : steps) seconds.push_back(step.seconds);
  std::sort(seconds.begin(), seconds.end());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(seconds.size())));
  return seconds[std::clamp<std::size_t>(rank, 1, seconds.size()) - 1];
}

namespace {

/// Draws global batches; a sorted one draws many at once and makes each of samples of like LLM length.
class BatchSource {
 public:
  BatchSource(const PhaseLengths& lengths, const Configuration& configuration, bool sorted)
      : lengths_(lengths),
        sampler_(lengths.samples(), configuration.seed),
        seed_(configuration.seed),
        samples_(std::size_t{configuration.gpus} * configuration.batch),
        instances_(configuration.gpus / configuration.parallelism.gpus()),
        sorted_(sorted) {}

  [[nodiscard]] std::vector<std::uint32_t> next() {
    if (!sorted_) return sampler_.next(samples_);
    if (waiting_.empty()) draw_window();
    std::vector<std::uint32_t> batch = std::move(waiting_.back());
    waiting_.pop_back();
    return batch;
  }

 private:
  /// As length-grouped samplers do: a window of batches is sorted, cut into batches, and these are shuffled. Samples
  /// of a batch are dealt to and fro over the instances.
  void draw_window() {
    constexpr std::size_t window = 50;  // the customary number (Hugging Face's length-grouped sampler)
    std::vector<std::uint32_t> samples = sampler_.next(window * samples_);
    std::stable_sort(samples.begin(), samples.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return lengths_.llm_length[a] > lengths_.llm_length[b]; });
    const std::size_t each = samples_ / instances_;
    for (const std::uint32_t b : permutation(window, Random(seed_, 1'000'000 + windows_++))) {
      const auto first = samples.begin() + static_cast<std::ptrdiff_t>(b * samples_);
      std::vector<std::uint32_t> batch(samples_);
      for (std::size_t i = 0; i < samples_; ++i) {
        const std::size_t round = i / instances_;
        const std::size_t place = i % instances_;
        const std::size_t instance = round % 2 == 0 ? place : instances_ - 1 - place;
        batch[instance * each + round] = first[static_cast<std::ptrdiff_t>(i)];
      }
      waiting_.push_back(std::move(batch));
    }
  }

  const PhaseLengths& lengths_;
  Sampler sampler_;
  std::uint64_t seed_;
  std::uint64_t windows_ = 0;
  std::size_t samples_;
  std::size_t instances_;
  bool sorted_;
  std::vector<std::vector<std::uint32_t>> waiting_;
};

void check(const Configuration& configuration, const Strategy& strategy) {
  const Parallelism& p = configuration.parallelism;
  if (p.pipeline > 1 && configuration.network == NetworkModel::fluid) {
    throw InvalidInput("pipelines are not played on a fluid network: expected one pipeline stage, or endpoints");
  }
  if (p.pipeline > 1 && strategy.balances()) {
    throw InvalidInput(
        fmt::format("strategy \"{}\" rearranges samples between phases, which a pipeline runs at the "
                    "same time: expected one pipeline stage, or a strategy that moves nothing",
                    strategy.name));
  }
  if (configuration.padded && strategy.splits) {
    throw InvalidInput(
        fmt::format("strategy \"{}\" cuts sequences into pieces, which are packed: expected packed "
                    "sequences, or another strategy",
                    strategy.name));
  }
  for (const auto* slow : {&configuration.slow_gpus, &configuration.slow_links}) {
    for (const Slowdown& s : *slow) {
      if (s.gpu >= configuration.gpus) {
        throw InvalidInput(fmt::format("GPU {} cannot be slow: there are {}", s.gpu, configuration.gpus));
      }
      if (!(s.factor > 0)) throw InvalidInput(fmt::format("a slowdown of {} is not positive", s.factor));
    }
  }
}

/// lane → the largest factor of its GPUs; empty if all are 1.
std::vector<double> scales(const std::vector<Slowdown>& slow, const Configuration& configuration) {
  if (slow.empty()) return {};
  const Parallelism& p = configuration.parallelism;
  const std::uint32_t instances = configuration.gpus / p.gpus();
  std::vector<double> scale(std::size_t{instances} * p.pipeline, 1);
  for (const Slowdown& s : slow) {
    const std::uint32_t place = s.gpu / p.stage_gpus();  // stage by stage
    double& lane = scale[std::size_t{place % instances} * p.pipeline + place / instances];
    lane = std::max(lane, s.factor);
  }
  return scale;
}

/// What the simulated system takes to plan a step.
double planning_seconds(const Configuration& configuration, const Cluster& cluster, const Strategy& strategy,
                        const StepPlan& plan) {
  if (configuration.measure_planning) {
    double seconds = 0;
    for (const PhasePlan& phase : plan.phases) seconds += phase.solve_seconds;
    return seconds;
  }
  if (configuration.plan_seconds) return *configuration.plan_seconds;
  const double samples = static_cast<double>(configuration.gpus) * configuration.batch;
  return strategy.balances() ? cluster.software.plan_seconds_per_sample * samples : 0;
}

/// What planning and the host add to a played step.
void add_planning(PlayedStep& played, const Configuration& configuration, const Cluster& cluster, double plan_seconds) {
  StepResult& step = played.result;
  const double wait = configuration.overlap_planning ? std::max(0.0, plan_seconds - step.seconds) : plan_seconds;
  step.breakdown.planning += wait;
  step.breakdown.overhead += cluster.software.step_overhead_seconds;
  step.seconds += wait + cluster.software.step_overhead_seconds;
}

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
  sum.hfu += step.hardware_flops;
  sum.tokens_per_second_per_gpu += step.tokens;
  sum.events += step.events;
  sum.breakdown += step.breakdown;
  sum.phases.resize(plan.phases.size());
  for (std::size_t phase = 0; phase < plan.phases.size(); ++phase) {
    PhaseSummary& summary = sum.phases[phase];
    summary.phase = plan.phases[phase].phase;
    summary.imbalance += plan.phases[phase].assignment.imbalance();
    summary.gap += plan.phases[phase].assignment.gap();
    summary.idle_fraction += step.phases[phase].idle_fraction();
  }
  if (index == 0 || step.peak_memory.total() > sum.peak_memory.total()) {
    sum.peak_memory = step.peak_memory;
    sum.peak_rank = step.peak_lane / sum.parallelism.pipeline;
    sum.peak_stage = step.peak_lane % sum.parallelism.pipeline;
    sum.peak_step = index;
  }
  sum.steps.push_back(step);
}

/// Steps since the last checkpoint are run again.
double lost_seconds(const NodeLoss& loss, const std::vector<StepResult>& steps) {
  if (loss.step >= steps.size()) {
    throw InvalidInput(fmt::format("a node cannot be lost in step {}: there are {} steps", loss.step, steps.size()));
  }
  double seconds = loss.restart_seconds;
  const std::uint32_t checkpoint = loss.step / loss.checkpoint_every * loss.checkpoint_every;
  for (std::uint32_t step = checkpoint; step <= loss.step; ++step) seconds += steps[step].seconds;
  return seconds;
}

/// Turns sums into means and rates.
void finish(StrategyResult& sum, const Cluster& cluster, const Configuration& configuration) {
  const double steps = configuration.steps;
  const double gpu_seconds = sum.step_seconds * configuration.gpus;
  const double peak = cluster.gpu.peak(cluster.software.precision);
  sum.total_seconds = sum.step_seconds;
  if (configuration.lost_node) sum.lost_seconds = lost_seconds(*configuration.lost_node, sum.steps);
  sum.total_seconds += sum.lost_seconds;
  sum.gpu_hours = sum.total_seconds * configuration.gpus / 3600;
  sum.cost = sum.gpu_hours * cluster.gpu_hour_cost;
  sum.mfu /= gpu_seconds * peak;
  sum.hfu /= gpu_seconds * peak;
  sum.tokens_per_second_per_gpu /= gpu_seconds;
  sum.idle_fraction = 1 - sum.idle_fraction / sum.step_seconds;
  for (double* value : {&sum.step_seconds, &sum.exchange_seconds, &sum.plan_seconds, &sum.exchange_intra_node_bytes,
                        &sum.exchange_inter_node_bytes, &sum.input_intra_node_bytes, &sum.input_inter_node_bytes}) {
    *value /= steps;
  }
  sum.breakdown /= steps;
  for (PhaseSummary& phase : sum.phases) {
    phase.imbalance /= steps;
    phase.gap /= steps;
    phase.idle_fraction /= steps;
  }
  sum.oom = sum.peak_memory.total() > cluster.gpu.memory_bytes;
}

}  // namespace

StrategyResult simulate(const Mllm& model, const PhaseLengths& lengths, const Cluster& cluster,
                        const Configuration& given, const Strategy& strategy, const Progress& progress,
                        const Observe& observe) {
  Configuration configuration = given;
  if (strategy.pipelined && given.parallelism.tensor * given.parallelism.pipeline == 1) {
    choose_pipeline(model, lengths, cluster, strategy, configuration);
  }
  const Parallelism& parallelism = configuration.parallelism;
  const std::uint32_t instances = count_instances(configuration.gpus, parallelism);
  check(configuration, strategy);
  StrategyResult result;
  result.name = strategy.name;
  result.parallelism = parallelism;
  result.micro_batch = configuration.micro_batch;
  BatchSource source(lengths, configuration, strategy.sorted_batches);
  Fingerprint hash;
  const std::vector<std::uint32_t> home = home_ranks(instances, configuration.batch * parallelism.gpus());
  const Topology topology = cluster.topology(instances, parallelism.stage_gpus());
  const std::vector<PhaseShape> shapes = phase_shapes(model);
  StepOptions options = strategy.options;
  if (configuration.padded) options.llm.cost = llm_padded_cost(model);
  options.rates = cluster.exchange_rates(parallelism.stage_gpus());
  std::optional<SplitLengths> split;
  if (strategy.splits) {
    split = split_samples(model, lengths, configuration.batch * parallelism.gpus(),
                          static_cast<std::uint32_t>(topology.first_rank[1] - topology.first_rank[0]));
  }
  StepModel every_step = step_model(model, shapes, cluster, configuration, strategy);
  every_step.split = split ? &*split : nullptr;
  Conditions conditions{scales(configuration.slow_gpus, configuration), scales(configuration.slow_links, configuration),
                        configuration.jitter, 0};
  for (std::uint32_t step = 0; step < configuration.steps; ++step) {
    SplitBatch batch{source.next(), home};
    if (split) batch = in_pieces(*split, batch.samples, home);
    const StepPlan plan =
        plan_step(model, split ? split->lengths : lengths, batch.samples, batch.home, topology, options);
    hash.add(plan.hash);
    conditions.seed = mix64(configuration.seed * 0x9e3779b97f4a7c15ULL + step);
    PlayedStep played = play(every_step, plan, conditions);
    const double plan_seconds = planning_seconds(configuration, cluster, strategy, plan);
    result.plan_seconds += plan_seconds;
    add_planning(played, configuration, cluster, plan_seconds);
    add_step(result, plan, played.result, step);
    if (observe) observe(step, plan, played);
    if (progress) progress(step + 1, configuration.steps);
  }
  result.plan_hash = hash.value();
  finish(result, cluster, configuration);
  return result;
}

std::uint32_t find_batch(const Mllm& model, const PhaseLengths& lengths, const Cluster& cluster,
                         Configuration configuration, const Strategy& strategy, std::uint32_t most,
                         const Progress& progress) {
  std::uint32_t tried = 0;
  const auto fits = [&](std::uint32_t batch) {
    configuration.batch = batch;
    const bool fit = !simulate(model, lengths, cluster, configuration, strategy).oom;
    if (progress) progress(++tried, 2 * static_cast<std::uint32_t>(std::bit_width(most)));
    return fit;
  };
  std::uint32_t good = 0;
  std::uint32_t bad = 1;
  while (bad <= most && fits(bad)) {
    good = bad;
    bad *= 2;
  }
  bad = std::min(bad, most + 1);
  while (bad - good > 1) {
    const std::uint32_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace orch::sim
