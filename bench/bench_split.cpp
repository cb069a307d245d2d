// Planning time and quality of splitting: log-normal lengths, σ = 1, 32 samples a rank, cost 24576·l + l², nodes of 8.
//
// Counters: whole_over_mean = what no plan without splits can beat / mean rank cost, split_over_mean = largest / mean
// rank cost of the plan, gap = largest rank cost / lower bound − 1, splits = samples split, largest_group in ranks.
//
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>

#include "lengths.hpp"
#include "orchmllm/balance/split.hpp"

namespace {

void plan_splits(benchmark::State& state) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  const auto seed = static_cast<std::uint64_t>(state.range(1));
  const auto lengths = orch::bench::log_normal_lengths(std::size_t{ranks} * 32, 1.0, seed);
  const orch::PackedCost cost{.alpha = 24576, .beta = 1};
  orch::SplitPlan plan;
  for (auto _ : state) {
    plan = orch::balance::split(lengths, ranks, cost, {.ranks_per_node = 8});
    benchmark::DoNotOptimize(plan.rank_of.data());
  }
  std::uint32_t largest_group = 1;
  for (const orch::SplitSample& split : plan.splits) largest_group = std::max(largest_group, split.group);
  state.counters["whole_over_mean"] = static_cast<double>(plan.whole_lower_bound) / plan.mean_cost();
  state.counters["split_over_mean"] = plan.imbalance();
  state.counters["gap"] = plan.gap();
  state.counters["splits"] = static_cast<double>(plan.splits.size());
  state.counters["largest_group"] = largest_group;
}

}  // namespace

BENCHMARK(plan_splits)
    ->ArgNames({"ranks", "seed"})
    ->ArgsProduct({{64, 320, 2560}, {1, 2, 3}})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_MAIN();
