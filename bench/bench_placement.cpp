// Node-wise placement: our transportation solver beside Boost.Graph's and lp_solve's on the same problem, in one run.
//
// total_*: batch → node alone, a min-cost flow. place_*: the whole placement, ranks and bounds included; _ilp is
// lp_solve with 10 s. Arguments: nodes (of 8 ranks), law: 0 = batches that LPT makes of log-normal lengths (σ = 1, 32
// samples a rank); 1 = sparse and heavy-tailed, none to four pieces a batch. Counter over_bound = bytes / lower bound −
// 1, of the objective in the name.
//
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/successive_shortest_path_nonnegative_weights.hpp>
#include <cstdint>
#include <vector>

// Leans on what the others include.
#include <boost/graph/find_flow_cost.hpp>

#include "lengths.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/placement/placement.hpp"
#ifdef ORCHMLLM_HAVE_LPSOLVE
#include "orchmllm/placement/ilp.hpp"
#endif

namespace {

struct Problem {
  orch::Topology topology;
  orch::TrafficMatrix by_rank;
  orch::TrafficMatrix nodes = orch::by_node(by_rank, topology);
  std::vector<std::uint32_t> sizes = std::vector<std::uint32_t>(topology.nodes(), 8);
};

Problem log_normal_lpt(const orch::Topology& topology) {
  constexpr std::uint32_t samples_a_rank = 32;
  const auto lengths = orch::bench::log_normal_lengths(std::size_t{topology.ranks()} * samples_a_rank, 1.0, 1);
  std::vector<std::uint32_t> home;
  for (std::uint32_t i = 0; i < lengths.size(); ++i) home.push_back(i / samples_a_rank);
  const orch::Assignment balanced = orch::balance::greedy(lengths, topology.ranks());
  return {topology, orch::traffic_matrix(home, balanced.rank_of, lengths, topology.ranks())};
}

Problem sparse_heavy_tailed(const orch::Topology& topology) {
  orch::Random random(1);
  std::vector<std::uint32_t> from;
  std::vector<std::uint32_t> to;
  for (std::uint32_t batch = 0; batch < topology.ranks(); ++batch) {
    for (auto pieces = static_cast<std::uint32_t>(random.uniform() * 5); pieces > 0; --pieces) {
      from.push_back(static_cast<std::uint32_t>(random.uniform() * topology.ranks()));
      to.push_back(batch);
    }
  }
  const auto bytes = orch::bench::log_normal_lengths(from.size(), 1.5, 2);
  return {topology, orch::traffic_matrix(from, to, bytes, topology.ranks())};
}

Problem problem(const benchmark::State& state) {
  const orch::Topology topology = orch::uniform_topology(static_cast<std::uint32_t>(state.range(0)) * 8, 8);
  return state.range(1) == 0 ? log_normal_lpt(topology) : sparse_heavy_tailed(topology);
}

double over(std::uint64_t bytes, std::uint64_t bound) {
  return static_cast<double>(bytes) / static_cast<double>(bound) - 1;
}

std::uint64_t total_bound(const Problem& p) { return orch::placement::place_total(p.by_rank, p.topology).total_bound; }

// --- total --------------------------------------------------------------------------------------------------------

void total_transport(benchmark::State& state) {
  const Problem p = problem(state);
  std::vector<std::uint32_t> node_of;
  for (auto _ : state) node_of = orch::placement::transport(p.nodes, p.sizes);
  state.counters["over_bound"] = over(orch::placement::node_volumes(p.nodes, node_of).total(), total_bound(p));
}

/// The same problem as a graph: source → batch → node → sink. What is not an entry of the matrix goes through one more
/// vertex, so that the graph is as sparse as the matrix. Costs are the bytes that move.
class Network {
 public:
  explicit Network(const Problem& p) : graph_(p.nodes.rows() + p.nodes.places + 3), source_(0), sink_(1) {
    constexpr std::size_t elsewhere = 2;
    constexpr std::size_t first_batch = 3;
    const std::size_t first_node = first_batch + p.nodes.rows();
    for (std::uint32_t batch = 0; batch < p.nodes.rows(); ++batch) {
      const auto bytes = static_cast<std::int64_t>(p.nodes.row_bytes(batch));
      connect(source_, first_batch + batch, 1, 0);
      connect(first_batch + batch, elsewhere, 1, bytes);
      for (const orch::TrafficEntry& entry : p.nodes.row(batch)) {
        connect(first_batch + batch, first_node + entry.place, 1, bytes - static_cast<std::int64_t>(entry.bytes));
      }
    }
    for (std::uint32_t node = 0; node < p.nodes.places; ++node) {
      connect(elsewhere, first_node + node, p.sizes[node], 0);
      connect(first_node + node, sink_, p.sizes[node], 0);
    }
  }

  std::uint64_t successive_shortest_paths() {
    boost::successive_shortest_path_nonnegative_weights(graph_, source_, sink_);
    return static_cast<std::uint64_t>(boost::find_flow_cost(graph_));
  }

 private:
  using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
  using Edge = Traits::edge_descriptor;
  using EdgeProperties =
      boost::property<boost::edge_capacity_t, std::int64_t,
                      boost::property<boost::edge_residual_capacity_t, std::int64_t,
                                      boost::property<boost::edge_reverse_t, Edge,
                                                      boost::property<boost::edge_weight_t, std::int64_t>>>>;
  using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, EdgeProperties>;

  void connect(std::size_t from, std::size_t to, std::int64_t capacity, std::int64_t cost) {
    const Edge forth = boost::add_edge(from, to, graph_).first;
    const Edge back = boost::add_edge(to, from, graph_).first;
    boost::put(boost::edge_capacity, graph_, forth, capacity);
    boost::put(boost::edge_capacity, graph_, back, 0);
    boost::put(boost::edge_reverse, graph_, forth, back);
    boost::put(boost::edge_reverse, graph_, back, forth);
    boost::put(boost::edge_weight, graph_, forth, cost);
    boost::put(boost::edge_weight, graph_, back, -cost);
  }

  Graph graph_;
  std::size_t source_;
  std::size_t sink_;
};

/// The graph is built outside the time, anew for every run.
void total_boost(benchmark::State& state) {
  const Problem p = problem(state);
  std::uint64_t bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    Network network(p);
    state.ResumeTiming();
    bytes = network.successive_shortest_paths();
  }
  state.counters["over_bound"] = over(bytes, total_bound(p));
}

// --- whole placements -----------------------------------------------------------------------------------------------

void place_total(benchmark::State& state) {
  const Problem p = problem(state);
  orch::Placement placed;
  for (auto _ : state) placed = orch::placement::place_total(p.by_rank, p.topology);
  state.counters["over_bound"] = over(placed.total_bytes, placed.total_bound);
}

void place_bottleneck(benchmark::State& state) {
  const Problem p = problem(state);
  orch::Placement placed;
  for (auto _ : state) placed = orch::placement::place_bottleneck(p.by_rank, p.topology);
  state.counters["over_bound"] = over(placed.bottleneck_bytes, placed.bottleneck_bound);
  state.SetLabel(placed.proved_optimal ? "proved optimal" : "");
}

void all_sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"nodes", "law"})->ArgsProduct({{8, 16, 40, 80, 320}, {0, 1}})->Unit(benchmark::kMillisecond);
  bench->MinTime(0.1);
}

#ifdef ORCHMLLM_HAVE_LPSOLVE
void run_ilp(benchmark::State& state, orch::PlacementObjective objective) {
  const Problem p = problem(state);
  orch::Placement placed;
  for (auto _ : state) {
    placed = orch::placement::place_ilp(p.by_rank, p.topology, {.objective = objective, .seconds = 10});
  }
  const orch::Placement ours = orch::placement::place(p.by_rank, p.topology, objective);
  state.counters["over_bound"] = objective == orch::PlacementObjective::total
                                     ? over(placed.total_bytes, ours.total_bound)
                                     : over(placed.bottleneck_bytes, ours.bottleneck_bound);
  state.SetLabel(placed.proved_optimal ? "proved optimal" : "not proved in 10 s");
}
/// lp_solve's limit is a clock: one run, of up to 10 s.
void once(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"nodes", "law"})->ArgsProduct({{8, 16}, {0, 1}})->Unit(benchmark::kMillisecond);
  bench->Iterations(1)->Repetitions(1);
}
void place_total_ilp(benchmark::State& state) { run_ilp(state, orch::PlacementObjective::total); }
void place_bottleneck_ilp(benchmark::State& state) { run_ilp(state, orch::PlacementObjective::bottleneck); }
#endif

}  // namespace

BENCHMARK(total_transport)->Apply(all_sizes);
BENCHMARK(total_boost)->Apply(all_sizes);
BENCHMARK(place_total)->Apply(all_sizes);
BENCHMARK(place_bottleneck)->Apply(all_sizes);
#ifdef ORCHMLLM_HAVE_LPSOLVE
BENCHMARK(place_total_ilp)->Apply(once);
BENCHMARK(place_bottleneck_ilp)->Apply(once);
#endif
BENCHMARK_MAIN();
