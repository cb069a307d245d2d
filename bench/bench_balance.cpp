// Speed of the solvers beside straightforward reference implementations (reference.hpp), in the same run.
//
// Arguments: ranks, samples a rank, law: 0 = log-normal lengths (σ = 1, at most 32,768), cost = length; 1 = the same
// lengths, cost = 24576·l + l². Counter gap = largest rank cost / lower bound − 1.
//
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "lengths.hpp"
#include "orchmllm/balance/balance.hpp"
#include "reference.hpp"

namespace {

std::vector<orch::Cost> costs_of(const benchmark::State& state, std::uint64_t seed) {
  const auto n = static_cast<std::size_t>(state.range(0) * state.range(1));
  std::vector<orch::Cost> costs = orch::bench::log_normal_lengths(n, 1.0, seed, 32768);
  if (state.range(2) == 1) {
    for (orch::Cost& cost : costs) cost = 24576 * cost + cost * cost;
  }
  return costs;
}

/// A global batch is new in every step: inputs take turns, so that branch predictors cannot learn one by heart.
template <class Solve>
void run(benchmark::State& state, Solve&& solve) {
  constexpr std::uint64_t inputs = 64;
  std::vector<std::vector<orch::Cost>> costs;
  for (std::uint64_t seed = 1; seed <= inputs; ++seed) costs.push_back(costs_of(state, seed));
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  std::size_t turn = 0;
  for (auto _ : state) benchmark::DoNotOptimize(solve(costs[turn++ % inputs], ranks));
}

template <class Solve>
void run_with_gap(benchmark::State& state, Solve&& solve) {
  run(state, solve);
  state.counters["gap"] = solve(costs_of(state, 1), static_cast<std::uint32_t>(state.range(0))).gap();
}

using Costs = std::vector<orch::Cost>;

void reference_lpt(benchmark::State& state) {
  run(state, [](const Costs& costs, std::uint32_t ranks) { return reference::lpt(costs, ranks); });
}
void lpt(benchmark::State& state) {
  run_with_gap(state, [](const Costs& costs, std::uint32_t ranks) { return orch::balance::greedy(costs, ranks); });
}
void sort_alone(benchmark::State& state) {
  run(state, [](const Costs& costs, std::uint32_t) { return orch::descending_order(costs); });
}
void lpt_and_refine(benchmark::State& state) {
  run_with_gap(state, [](const Costs& costs, std::uint32_t ranks) {
    return orch::balance::refine(costs, orch::balance::greedy(costs, ranks).rank_of, ranks, {}, {.target_gap = 4e-4});
  });
}
void balance_free(benchmark::State& state) {
  run_with_gap(state,
               [](const Costs& costs, std::uint32_t ranks) { return orch::balance::balance(costs, ranks).assignment; });
}
void balance_equal_counts(benchmark::State& state) {
  run_with_gap(state, [](const Costs& costs, std::uint32_t ranks) {
    return orch::balance::balance(costs, ranks, {.constraints = {.counts = orch::Counts::equal}}).assignment;
  });
}
void reference_karmarkar_karp(benchmark::State& state) {
  run(state, [](const Costs& costs, std::uint32_t ranks) { return reference::karmarkar_karp(costs, ranks); });
}
void karmarkar_karp(benchmark::State& state) {
  run_with_gap(state,
               [](const Costs& costs, std::uint32_t ranks) { return orch::balance::karmarkar_karp(costs, ranks); });
}

void sizes(benchmark::internal::Benchmark* bench, const std::vector<std::int64_t>& ranks) {
  bench->ArgNames({"ranks", "per_rank", "law"})->ArgsProduct({ranks, {32}, {0, 1}})->Unit(benchmark::kMillisecond);
}
void all_sizes(benchmark::internal::Benchmark* bench) { sizes(bench, {8, 64, 320, 2560}); }
void up_to_320(benchmark::internal::Benchmark* bench) { sizes(bench, {8, 64, 320}); }

}  // namespace

BENCHMARK(reference_lpt)->Apply(all_sizes);
BENCHMARK(sort_alone)->Apply(all_sizes);
BENCHMARK(lpt)->Apply(all_sizes);
BENCHMARK(lpt_and_refine)->Apply(all_sizes);
BENCHMARK(balance_free)->Apply(all_sizes);
BENCHMARK(balance_equal_counts)->Apply(all_sizes);
BENCHMARK(reference_karmarkar_karp)->Apply(up_to_320);
BENCHMARK(karmarkar_karp)->Apply(all_sizes);
BENCHMARK_MAIN();
