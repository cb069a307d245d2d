// Movement-aware balancing beside the reference LPT, in the same run.
//
// Arguments: ranks (8 a node), samples a rank (32 consecutive ones are at home on a rank), law: 0 = log-normal lengths
// (σ = 1, at most 32,768), cost = length; 1 = the same lengths, cost = 24576·l + l²; 2 and 3 = the same costs of
// lengths up to 4,096, where no single sample sets the bound. Bytes are lengths. Counters: gap = largest rank cost /
// lower bound − 1; inter_node_part = bytes between nodes / all bytes; over_bound = bytes between nodes / inter-node
// bound (0 where nothing need cross); to_placed_lpt = bytes between nodes / those of LPT with its batches placed to
// keep most at home; the last three are sums over four inputs.
//
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "lengths.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/balance/movement.hpp"
#include "orchmllm/placement/placement.hpp"
#include "reference.hpp"

namespace {

struct Input {
  std::vector<std::uint64_t> lengths;
  std::vector<orch::Cost> costs;
};

std::vector<Input> inputs_of(const benchmark::State& state, std::uint64_t inputs) {
  std::vector<Input> result;
  const auto n = static_cast<std::size_t>(state.range(0) * state.range(1));
  for (std::uint64_t seed = 1; seed <= inputs; ++seed) {
    Input input{orch::bench::log_normal_lengths(n, 1.0, seed, state.range(2) < 2 ? 32768 : 4096), {}};
    input.costs = input.lengths;
    if (state.range(2) % 2 == 1) {
      for (orch::Cost& cost : input.costs) cost = 24576 * cost + cost * cost;
    }
    result.push_back(std::move(input));
  }
  return result;
}

std::vector<std::uint32_t> home_of(const benchmark::State& state) {
  std::vector<std::uint32_t> home(static_cast<std::size_t>(state.range(0) * state.range(1)));
  for (std::size_t i = 0; i < home.size(); ++i) home[i] = static_cast<std::uint32_t>(i / 32);
  return home;
}

/// A global batch is new in every step: inputs take turns, so that branch predictors cannot learn one by heart.
template <class Solve>
void run(benchmark::State& state, Solve&& solve) {
  const std::vector<Input> inputs = inputs_of(state, 64);
  std::size_t turn = 0;
  for (auto _ : state) benchmark::DoNotOptimize(solve(inputs[turn++ % inputs.size()]));
}

void reference_lpt(benchmark::State& state) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  run(state, [&](const Input& input) { return reference::lpt(input.costs, ranks); });
}

void movement(benchmark::State& state) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  const orch::Topology topology = orch::uniform_topology(ranks, 8);
  const std::vector<std::uint32_t> home = home_of(state);
  const auto move = [&](const Input& input) {
    return orch::balance::movement(input.costs, input.lengths, home, topology);
  };
  run(state, move);

  double gap = 0;
  double inter = 0;
  double bound = 0;
  double bytes = 0;
  double placed_lpt = 0;
  for (const Input& input : inputs_of(state, 4)) {
    const orch::Movement moved = move(input);
    gap = std::max(gap, moved.assignment.gap());
    inter += static_cast<double>(moved.inter_node_bytes);
    bound += static_cast<double>(moved.inter_node_bound);
    bytes += std::accumulate(input.lengths.begin(), input.lengths.end(), 0.0);
    const orch::Assignment flat = orch::balance::greedy(input.costs, ranks);
    placed_lpt += static_cast<double>(
        orch::placement::place_total(orch::traffic_matrix(home, flat.rank_of, input.lengths, ranks), topology)
            .total_bytes);
  }
  state.counters["gap"] = gap;
  state.counters["inter_node_part"] = inter / bytes;
  state.counters["over_bound"] = bound > 0 ? inter / bound : 0;
  state.counters["to_placed_lpt"] = inter / placed_lpt;
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"ranks", "per_rank", "law"})
      ->ArgsProduct({{64, 320, 2560}, {32}, {0, 1, 2, 3}})
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

BENCHMARK(reference_lpt)->Apply(sizes);
BENCHMARK(movement)->Apply(sizes);
BENCHMARK_MAIN();
