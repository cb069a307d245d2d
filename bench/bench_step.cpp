// Whole step plans on the shipped trace: 2,560 ranks × 32 samples, vision + audio + LLM, beside the reference LPT of
// the LLM phase alone, in the same run. Counter peak_mib = most memory that a plan and its making hold at once.
//
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "orchmllm/io/plan.hpp"
#include "orchmllm/io/trace.hpp"
#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/orchestrate/rank_view.hpp"
#include "orchmllm/orchestrate/sampler.hpp"
#include "orchmllm/placement/placement.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/model_file.hpp"
#include "reference.hpp"

namespace {

std::size_t held = 0;
std::size_t most_held = 0;

}  // namespace

void* operator new(std::size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  held += malloc_usable_size(memory);
  most_held = std::max(most_held, held);
  return memory;
}
void operator delete(void* memory) noexcept {
  held -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace {

using namespace orch;

constexpr std::uint32_t ranks = 2560;
constexpr std::uint32_t batch = 32;

struct Inputs {
  Mllm model = sim::load_model(std::string(ORCHMLLM_SOURCE_DIR) + "/sim/models/mllm-84b.toml");
  sim::Cluster cluster = sim::load_cluster(std::string(ORCHMLLM_SOURCE_DIR) + "/sim/clusters/h100-8x400g.toml");
  std::vector<PhaseLengths> lengths;  ///< of global batches that take turns
  std::vector<std::uint32_t> samples = std::vector<std::uint32_t>(std::size_t{ranks} * batch);
  std::vector<std::uint32_t> home = home_ranks(ranks, batch);
  Topology topology = uniform_topology(ranks, 8);

  Inputs() : lengths(16) {
    std::iota(samples.begin(), samples.end(), 0U);
    std::vector<Sample> trace;
    const std::string path = std::string(ORCHMLLM_SOURCE_DIR) + "/traces/omni-demo.jsonl.gz";
    (void)io::read_trace(path, [&](const Sample& sample) { trace.push_back(sample); });
    Sampler sampler(trace.size(), 1);
    for (PhaseLengths& of_batch : lengths) {
      for (const std::uint32_t sample : sampler.next(home.size())) append(of_batch, model, trace[sample]);
    }
  }
  [[nodiscard]] StepPlan plan(std::size_t turn, const StepOptions& options) const {
    return plan_step(model, lengths[turn % lengths.size()], samples, home, topology, options);
  }
};

const Inputs& inputs() {
  static const Inputs read;
  return read;
}

StepOptions options_of(Balancer balancer) {
  StepOptions options{.encoders = {.balancer = balancer}, .llm = {.balancer = balancer}};
  if (balancer == Balancer::lpt) {
    options.placer = [](const TrafficMatrix& bytes, const Topology& topology) {
      return placement::place(bytes, topology);
    };
  }
  options.rates = inputs().cluster.exchange_rates();
  return options;
}

void reference_lpt(benchmark::State& state) {
  const PackedCost cost = llm_cost(inputs().model);
  std::vector<std::vector<Cost>> costs;
  for (const PhaseLengths& lengths : inputs().lengths) {
    costs.emplace_back();
    for (const std::uint32_t length : lengths.llm_length) costs.back().push_back(cost(length));
  }
  std::size_t turn = 0;
  for (auto _ : state) benchmark::DoNotOptimize(reference::lpt(costs[turn++ % costs.size()], ranks));
}

void step_plan(benchmark::State& state, const StepOptions& options) {
  (void)inputs();
  const std::size_t before = held;
  most_held = held;
  std::size_t turn = 0;
  for (auto _ : state) {
    const StepPlan plan = inputs().plan(turn++, options);
    for (const Route& route : plan.routes) {
      if (!route.is_input()) benchmark::DoNotOptimize(inverse(route.exchange).transfers.size());  // gradients
    }
    benchmark::DoNotOptimize(plan.hash);
  }
  state.counters["peak_mib"] = static_cast<double>(most_held - before) / (1U << 20U);
}

void step_movement(benchmark::State& state) { step_plan(state, options_of(Balancer::movement)); }
void step_movement_units(benchmark::State& state) {
  StepOptions options = options_of(Balancer::movement);
  options.encoders.granularity = Granularity::unit;
  step_plan(state, options);
}
void step_movement_auto_exchange(benchmark::State& state) {
  StepOptions options = options_of(Balancer::movement);
  options.schedule = ExchangeSchedule::automatic;
  step_plan(state, options);
}
void step_lpt_placed(benchmark::State& state) { step_plan(state, options_of(Balancer::lpt)); }

/// One rank's part of a plan; the counter is the size of its CBOR document, the largest of all ranks.
void view_of(benchmark::State& state, Balancer balancer) {
  const StepPlan plan = inputs().plan(0, options_of(balancer));
  std::uint32_t rank = 0;
  for (auto _ : state) benchmark::DoNotOptimize(rank_view(plan, rank++ % ranks));
  std::size_t largest = 0;
  for (rank = 0; rank < ranks; ++rank) {
    largest = std::max(largest, io::to_cbor(io::to_json(rank_view(plan, rank))).size());
  }
  state.counters["largest_kb"] = static_cast<double>(largest) / 1e3;
}

void rank_view_movement(benchmark::State& state) { view_of(state, Balancer::movement); }
void rank_view_lpt(benchmark::State& state) { view_of(state, Balancer::lpt); }

BENCHMARK(reference_lpt)->Unit(benchmark::kMillisecond);
BENCHMARK(step_movement)->Unit(benchmark::kMillisecond);
BENCHMARK(step_movement_units)->Unit(benchmark::kMillisecond);
BENCHMARK(step_movement_auto_exchange)->Unit(benchmark::kMillisecond);
BENCHMARK(step_lpt_placed)->Unit(benchmark::kMillisecond);
BENCHMARK(rank_view_movement)->Unit(benchmark::kMicrosecond);
BENCHMARK(rank_view_lpt)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
