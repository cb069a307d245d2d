// Planning time and quality of micro-batches: log-normal lengths, σ = 1, cut at the cap of 16,384 tokens, 32 samples a
// rank, cost 24576·l + l². And a hard input for the planner: costs that have nothing to do with tokens, both
// uniform, under a cap that leaves about 2% of the tokens free.
//
// Counters: k = micro-batches on every rank, step_over_mean = Σ of slowest ranks / mean rank cost, gap = step cost /
// lower bound − 1.
//
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "lengths.hpp"
#include "orchmllm/balance/microbatch.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/cost/packed.hpp"

namespace {

void run(benchmark::State& state, const std::vector<orch::Cost>& costs, const std::vector<std::uint64_t>& tokens,
         std::uint64_t token_cap) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  const orch::MicrobatchOptions options{.token_cap = token_cap, .may_move = state.range(1) != 0};
  std::vector<std::uint32_t> home(costs.size());
  for (std::size_t i = 0; i < home.size(); ++i) home[i] = static_cast<std::uint32_t>(i % ranks);
  orch::MicrobatchPlan plan;
  for (auto _ : state) {
    plan = orch::balance::microbatches(costs, tokens, home, ranks, options);
    benchmark::DoNotOptimize(plan.rank_of.data());
  }
  state.counters["k"] = plan.microbatches;
  state.counters["smallest_proven"] = plan.smallest_proven ? 1 : 0;
  state.counters["step_over_mean"] = plan.imbalance();
  state.counters["gap"] = plan.gap();
}

void plan_microbatches(benchmark::State& state) {
  constexpr std::uint64_t cap = 16384;
  const auto tokens = orch::bench::log_normal_lengths(static_cast<std::size_t>(state.range(0)) * 32, 1.0, 1, cap);
  const orch::PackedCost cost{.alpha = 24576, .beta = 1};
  std::vector<orch::Cost> costs;
  for (const std::uint64_t length : tokens) costs.push_back(cost(length));
  run(state, costs, tokens, cap);
}

void plan_microbatches_unrelated(benchmark::State& state) {
  orch::Random random(1);
  std::vector<orch::Cost> costs(static_cast<std::size_t>(state.range(0)) * 32);
  std::vector<std::uint64_t> tokens(costs.size());
  for (std::size_t i = 0; i < costs.size(); ++i) {
    costs[i] = random.below(1000);
    tokens[i] = 1 + random.below(2000);
  }
  run(state, costs, tokens, 4096);
}

}  // namespace

BENCHMARK(plan_microbatches)
    ->ArgNames({"ranks", "may_move"})
    ->ArgsProduct({{8, 64, 320, 2560}, {0, 1}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(plan_microbatches_unrelated)
    ->ArgNames({"ranks", "may_move"})
    ->ArgsProduct({{320, 2560}, {0, 1}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_MAIN();
