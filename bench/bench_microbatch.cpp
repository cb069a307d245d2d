// Planning time and quality of micro-batches: log-normal lengths, σ = 1, cut at the cap of 16,384 tokens, 32 samples a
// rank, cost 24576·l + l².
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
#include "orchmllm/cost/packed.hpp"

namespace {

void plan_microbatches(benchmark::State& state) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  const orch::MicrobatchOptions options{.token_cap = 16384, .may_move = state.range(1) != 0};
  const auto tokens = orch::bench::log_normal_lengths(std::size_t{ranks} * 32, 1.0, 1, options.token_cap);
  const orch::PackedCost cost{.alpha = 24576, .beta = 1};
  std::vector<orch::Cost> costs;
  std::vector<std::uint32_t> home;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    costs.push_back(cost(tokens[i]));
    home.push_back(static_cast<std::uint32_t>(i % ranks));
  }
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

}  // namespace

BENCHMARK(plan_microbatches)
    ->ArgNames({"ranks", "may_move"})
    ->ArgsProduct({{8, 64, 320, 2560}, {0, 1}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_MAIN();
