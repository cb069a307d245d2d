#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "instances.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/placement/placement.hpp"
#include "property.hpp"
#ifdef ORCHMLLM_HAVE_LPSOLVE
#include "orchmllm/placement/ilp.hpp"
#endif

using namespace orch;

namespace {

struct Instance {
  Topology topology;
  TrafficMatrix by_rank;
};

/// Empty, a few bytes, or heavy-tailed.
std::uint64_t any_bytes() {
  const auto tail = *rc::gen::inRange(0, 4);
  return *rc::gen::inRange<std::uint64_t>(0, tail == 0 ? 20000 : 100);
}

/// Batches of a few pieces each from random ranks, on nodes of unequal size; now and then one node holds nearly all.
Instance any_instance(std::uint32_t most_nodes, std::uint32_t most_ranks_a_node) {
  std::vector<std::uint32_t> sizes(*rc::gen::inRange<std::size_t>(1, most_nodes + 1));
  for (auto& size : sizes) size = *rc::gen::inRange<std::uint32_t>(1, most_ranks_a_node + 1);
  Instance instance{topology(sizes), {}};
  const std::uint32_t ranks = instance.topology.ranks();
  const bool skewed = *rc::gen::arbitrary<bool>();
  std::vector<std::uint32_t> from;
  std::vector<std::uint32_t> to;
  std::vector<std::uint64_t> bytes;
  for (std::uint32_t batch = 0; batch < ranks; ++batch) {
    for (auto pieces = *rc::gen::inRange(0, 5); pieces > 0; --pieces) {
      from.push_back(*rc::gen::inRange<std::uint32_t>(0, skewed ? instance.topology.size(0) : ranks));
      to.push_back(batch);
      bytes.push_back(any_bytes());
    }
  }
  instance.by_rank = traffic_matrix(from, to, bytes, ranks);
  return instance;
}

/// Best total and bottleneck over all permutations.
std::pair<std::uint64_t, std::uint64_t> best_of_all(const Instance& instance) {
  const TrafficMatrix nodes = by_node(instance.by_rank, instance.topology);
  std::vector<std::uint32_t> rank_of(instance.topology.ranks());
  std::iota(rank_of.begin(), rank_of.end(), 0U);
  std::pair<std::uint64_t, std::uint64_t> best{~0ULL, ~0ULL};
  do {
    std::vector<std::uint32_t> node_of(rank_of.size());
    for (std::size_t batch = 0; batch < rank_of.size(); ++batch)
      node_of[batch] = instance.topology.node_of[rank_of[batch]];
    const auto volumes = placement::node_volumes(nodes, node_of);
    best.first = std::min(best.first, volumes.total());
    best.second = std::min(best.second, volumes.bottleneck());
  } while (std::next_permutation(rank_of.begin(), rank_of.end()));
  return best;
}

void assert_valid(const Instance& instance, const Placement& placement) {
  const std::set<std::uint32_t> used(placement.rank_of.begin(), placement.rank_of.end());
  RC_ASSERT(placement.rank_of.size() == instance.topology.ranks());
  RC_ASSERT(used.size() == instance.topology.ranks());
  // Volumes recomputed from the permutation, rank by rank.
  std::uint64_t inter = 0;
  std::uint64_t intra = 0;
  for (std::uint32_t batch = 0; batch < instance.by_rank.rows(); ++batch) {
    for (const TrafficEntry& entry : instance.by_rank.row(batch)) {
      const std::uint32_t to = placement.rank_of[batch];
      if (instance.topology.node_of[entry.place] != instance.topology.node_of[to]) {
        inter += entry.bytes;
      } else if (entry.place != to) {
        intra += entry.bytes;
      }
    }
  }
  RC_ASSERT(inter == placement.total_bytes);
  RC_ASSERT(intra == placement.intra_node_bytes);
  RC_ASSERT(placement.total_bound <= placement.total_bytes);
  RC_ASSERT(placement.bottleneck_bound <= placement.bottleneck_bytes);
  if (placement.proved_optimal) {
    RC_ASSERT(placement.total_bytes == placement.total_bound ||
              placement.bottleneck_bytes == placement.bottleneck_bound || placement.solver == "ilp");
  }
  RC_ASSERT(!placement.solver.empty());
  RC_ASSERT(!placement.reason.empty());
}

/// 32 log-normal samples a rank, balanced by LPT.
Instance log_normal_lpt(const Topology& topology, double sigma, std::uint64_t seed) {
  const std::uint32_t ranks = topology.ranks();
  Random random(seed);
  std::vector<Cost> lengths(std::size_t{ranks} * 32);
  std::vector<std::uint32_t> home(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const double normal =
        std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
    lengths[i] = 1 + static_cast<Cost>(500 * std::exp(sigma * normal));
    home[i] = static_cast<std::uint32_t>(i / 32);
  }
  return {topology, traffic_matrix(home, balance::greedy(lengths, ranks).rank_of, lengths, ranks)};
}

}  // namespace

TEST_CASE("topologies") {
  const Topology t = uniform_topology(10, 4);
  CHECK(t.nodes() == 3);
  CHECK(t.size(2) == 2);
  CHECK(t.node_of[9] == 2);
  CHECK(t.rails == 4);
  CHECK(t.leaves() == 1);
  CHECK_THROWS_AS((void)uniform_topology(0, 4), InvalidInput);
  CHECK_THROWS_AS((void)uniform_topology(4, 0), InvalidInput);
  CHECK_THROWS_AS((void)topology(std::vector<std::uint32_t>{}), InvalidInput);
  CHECK_THROWS_WITH_AS((void)topology(std::vector<std::uint32_t>{2, 0}), doctest::Contains("node 1"), InvalidInput);
  CHECK_THROWS_WITH_AS((void)topology(std::vector<std::uint32_t>{1, ~0U}), doctest::Contains("nodes 0 to 1"),
                       InvalidInput);
}

TEST_CASE("rails and leaf groups") {
  const std::vector<std::uint32_t> sizes{4, 1, 3, 4, 2};
  const Topology t = topology(sizes, {.rails = 2, .nodes_per_leaf = 2});
  CHECK(t.local_index(7) == 2);
  CHECK(t.rail(7) == 0);
  CHECK(t.rail(6) == 1);
  CHECK(t.leaf(1) == 0);
  CHECK(t.leaf(2) == 1);
  CHECK(t.leaves() == 3);
  CHECK(t.gateway(0, 1) == 1);
  CHECK(t.gateway(1, 1) == 4);  // its one rank serves both rails
  CHECK(t.gateway(2, 1) == 6);
  CHECK(topology(sizes).rails == 4);
  test::check_property("gateways", [] {
    std::vector<std::uint32_t> any(*rc::gen::inRange<std::size_t>(1, 6));
    for (auto& size : any) size = *rc::gen::inRange<std::uint32_t>(1, 9);
    const Topology made = topology(any, {.rails = *rc::gen::inRange<std::uint32_t>(0, 10),
                                         .nodes_per_leaf = *rc::gen::inRange<std::uint32_t>(0, 8)});
    for (std::uint32_t rank = 0; rank < made.ranks(); ++rank) {
      const std::uint32_t node = made.node_of[rank];
      RC_ASSERT(made.first_rank[node] + made.local_index(rank) == rank);
      RC_ASSERT(made.rail(rank) < made.rails);
      RC_ASSERT(made.leaf(node) < made.leaves());
    }
    for (std::uint32_t node = 0; node < made.nodes(); ++node) {
      for (std::uint32_t rail = 0; rail < made.rails; ++rail) {
        const std::uint32_t rank = made.gateway(node, rail);
        RC_ASSERT(made.node_of[rank] == node);
        if (made.size(node) >= made.rails) RC_ASSERT(made.rail(rank) == rail);
      }
    }
  });
}

TEST_CASE("a traffic matrix adds up by rank and by node") {
  const std::vector<std::uint32_t> from{0, 1, 2, 3, 3};
  const std::vector<std::uint32_t> to{2, 2, 2, 0, 0};
  const std::vector<std::uint64_t> bytes{5, 6, 7, 8, 9};
  const TrafficMatrix matrix = traffic_matrix(from, to, bytes, 4);
  CHECK(matrix.bytes(2, 1) == 6);
  CHECK(matrix.bytes(0, 3) == 17);
  CHECK(matrix.row_bytes(2) == 18);
  const TrafficMatrix nodes = by_node(matrix, uniform_topology(4, 2));
  CHECK(nodes.bytes(2, 0) == 11);
  CHECK(nodes.bytes(2, 1) == 7);
  CHECK_THROWS_AS((void)traffic_matrix(from, to, bytes, 3), InvalidInput);
}

TEST_CASE("total: optimal against all permutations; bottleneck: true bound, never above the total's") {
  test::check_property("placement against brute force", [] {
    const Instance instance = any_instance(4, 2);
    const auto [total, bottleneck] = best_of_all(instance);
    const Placement flow = placement::place_total(instance.by_rank, instance.topology);
    assert_valid(instance, flow);
    RC_ASSERT(flow.total_bytes == total);
    const Placement repaired = placement::place_bottleneck(instance.by_rank, instance.topology);
    assert_valid(instance, repaired);
    RC_ASSERT(repaired.bottleneck_bound <= bottleneck);
    RC_ASSERT(repaired.bottleneck_bytes >= bottleneck);
    RC_ASSERT(repaired.bottleneck_bytes <= flow.bottleneck_bytes);
    if (repaired.proved_optimal) RC_ASSERT(repaired.bottleneck_bytes == bottleneck);
    // Cut short at any time, the answer is valid and its bounds are true.
    PlacementEffort little;
    little.flow = *rc::gen::inRange<std::uint64_t>(0, 60);
    little.visits = *rc::gen::inRange<std::uint64_t>(0, 60);
    little.swaps = *rc::gen::inRange<std::uint64_t>(0, 600);
    const Placement cut_total = placement::place_total(instance.by_rank, instance.topology, little);
    assert_valid(instance, cut_total);
    RC_ASSERT(cut_total.total_bound <= total);
    if (cut_total.proved_optimal) RC_ASSERT(cut_total.total_bytes == total);
    const Placement cut = placement::place_bottleneck(instance.by_rank, instance.topology, little);
    assert_valid(instance, cut);
    RC_ASSERT(cut.bottleneck_bound <= bottleneck);
    if (cut.proved_optimal) RC_ASSERT(cut.bottleneck_bytes == bottleneck);
  });
}

TEST_CASE("potentials prove that the flow is optimal, at any size") {
  test::check_property("duality", [] {
    const Instance instance = any_instance(12, 8);
    std::vector<std::uint32_t> room(instance.topology.nodes());
    for (std::uint32_t node = 0; node < room.size(); ++node) {
      room[node] = instance.topology.size(node) + *rc::gen::inRange<std::uint32_t>(0, 2);
    }
    const TrafficMatrix nodes = by_node(instance.by_rank, instance.topology);
    const placement::Transported flow = placement::transport_within(placement::unlimited, nodes, room);
    RC_ASSERT(flow.in_place == flow.bound);
    for (std::uint32_t node = 0; node < room.size(); ++node) {
      RC_ASSERT(std::count(flow.place_of.begin(), flow.place_of.end(), node) <= room[node]);
    }
    const placement::Transported cut =
        placement::transport_within(*rc::gen::inRange<std::uint64_t>(0, 500), nodes, room);
    RC_ASSERT(cut.in_place <= flow.in_place);
    RC_ASSERT(cut.bound >= flow.in_place);
  });
}

TEST_CASE("the bottleneck search leaves placements that no single swap improves") {
  const std::vector<std::uint32_t> from{4, 2, 0, 3, 0, 1};
  const std::vector<std::uint32_t> to{0, 0, 2, 4, 4, 5};
  const std::vector<std::uint64_t> bytes{4, 9, 7, 3, 8, 6};
  const Instance instance{uniform_topology(6, 2), traffic_matrix(from, to, bytes, 6)};
  const Placement placed = placement::place_bottleneck(instance.by_rank, instance.topology);
  CHECK(placed.bottleneck_bytes == 6);  // swaps that improve stop at 9
  CHECK(placed.proved_optimal);
}

TEST_CASE("the bottleneck is within 2% of its bound on log-normal LPT batches") {
  for (const std::uint32_t nodes : {8U, 16U, 40U}) {
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      const Instance instance = log_normal_lpt(uniform_topology(nodes * 8, 8), 1.0, seed);
      const Placement placed = placement::place(instance.by_rank, instance.topology, PlacementObjective::bottleneck);
      CAPTURE(nodes);
      CAPTURE(seed);
      CHECK(placed.bottleneck_bytes <= placed.bottleneck_bound + placed.bottleneck_bound / 50);
    }
  }
}

TEST_CASE("where nothing can be chosen or nothing moves") {
  const std::vector<std::uint32_t> from{0, 1, 2};
  const std::vector<std::uint32_t> to{1, 2, 0};
  const std::vector<std::uint64_t> bytes{5, 6, 7};
  const std::vector<std::uint64_t> nothing{0, 0, 0};
  for (const PlacementObjective objective : {PlacementObjective::total, PlacementObjective::bottleneck}) {
    // One node: all stays inside, and batches go to their ranks.
    const Placement one = placement::place(traffic_matrix(from, to, bytes, 3), uniform_topology(3, 3), objective);
    CHECK(one.proved_optimal);
    CHECK(one.total_bytes + one.bottleneck_bytes + one.intra_node_bytes == 0);
    // Nodes of one rank: every batch is from a single rank, which takes it.
    const Placement single = placement::place(traffic_matrix(from, to, bytes, 3), uniform_topology(3, 1), objective);
    CHECK(single.proved_optimal);
    CHECK(single.rank_of == std::vector<std::uint32_t>{2, 0, 1});
    // No traffic at all.
    const Placement still = placement::place(traffic_matrix(from, to, nothing, 3), uniform_topology(3, 2), objective);
    CHECK(still.proved_optimal);
    CHECK(still.bottleneck_bytes == 0);
  }
}

TEST_CASE("a deadline becomes limits of work, and more time is never worse") {
  CHECK_THROWS_AS((void)placement::effort_within(0), InvalidInput);
  CHECK_THROWS_AS((void)placement::effort_within(std::nan("")), InvalidInput);
  const Instance instance = log_normal_lpt(uniform_topology(640, 8), 2.0, 1);
  std::uint64_t total = ~0ULL;
  for (const double seconds : {1e-9, 1e-3, 1.0}) {
    const Placement placed = placement::place(instance.by_rank, instance.topology, {.seconds = seconds});
    CHECK(placed.total_bytes <= total);
    CHECK(placed.total_bound <= placed.total_bytes);
    CHECK(placed.proved_optimal == (placed.total_bound == placed.total_bytes));
    total = placed.total_bytes;
  }
  CHECK(placement::place(instance.by_rank, instance.topology, {.seconds = 1.0}).proved_optimal);
  CHECK_FALSE(placement::place(instance.by_rank, instance.topology, {.seconds = 1e-9}).proved_optimal);
}

TEST_CASE("inside a node batches go to the ranks that hold them") {
  // Both batches have most of their bytes on the other rank of one node.
  const std::vector<std::uint32_t> from{1, 0, 0};
  const std::vector<std::uint32_t> to{0, 1, 0};
  const std::vector<std::uint64_t> bytes{10, 10, 1};
  const Placement placement = placement::place_total(traffic_matrix(from, to, bytes, 2), uniform_topology(2, 2));
  CHECK(placement.rank_of == std::vector<std::uint32_t>{1, 0});
  CHECK(placement.intra_node_bytes == 1);
  CHECK(placement.total_bytes == 0);
}

TEST_CASE("too little room is infeasible and names what would do") {
  const std::vector<std::uint32_t> from{0, 1};
  const std::vector<std::uint64_t> bytes{1, 1};
  const std::vector<std::uint32_t> capacity{1};
  CHECK_THROWS_WITH_AS((void)placement::transport(traffic_matrix(from, from, bytes, 2), capacity),
                       doctest::Contains("2 would do"), Infeasible);
  CHECK_THROWS_AS((void)placement::place_total(traffic_matrix(from, from, bytes, 2), uniform_topology(3, 2)),
                  InvalidInput);
}

#ifdef ORCHMLLM_HAVE_LPSOLVE
TEST_CASE("total: equal to the integer program up to 16 nodes of 8") {
  std::vector<Topology> topologies;
  for (const std::uint32_t nodes : {2U, 4U, 8U, 16U}) {
    topologies.push_back(uniform_topology(nodes * 8, 8));
    std::vector<std::uint32_t> sizes(nodes);
    for (std::uint32_t node = 0; node < nodes; ++node) sizes[node] = 1 + (node * 5 + 2) % 8;
    topologies.push_back(topology(sizes));
  }
  for (const Topology& nodes : topologies) {
    for (const double sigma : {1.0, 2.0}) {
      const Instance instance = log_normal_lpt(nodes, sigma, nodes.ranks());
      const Placement ilp = placement::place_ilp(instance.by_rank, instance.topology, {.seconds = 60});
      CAPTURE(nodes.nodes());
      CHECK(ilp.proved_optimal);
      CHECK(ilp.total_bytes == placement::place_total(instance.by_rank, instance.topology).total_bytes);
    }
  }
}

TEST_CASE("the integer program and the flow agree") {
  test::check_property("ilp against flow", [] {
    const Instance instance = any_instance(6, 4);
    const Placement flow = placement::place_total(instance.by_rank, instance.topology);
    const Placement ilp = placement::place_ilp(instance.by_rank, instance.topology, {});
    assert_valid(instance, ilp);
    RC_ASSERT(ilp.proved_optimal);
    RC_ASSERT(ilp.total_bytes == flow.total_bytes);
  });
  test::check_property("ilp bottleneck", [] {
    const Instance instance = any_instance(3, 2);
    const Placement ilp =
        placement::place_ilp(instance.by_rank, instance.topology, {.objective = PlacementObjective::bottleneck});
    assert_valid(instance, ilp);
    RC_ASSERT(ilp.proved_optimal);
    RC_ASSERT(ilp.bottleneck_bytes == best_of_all(instance).second);
    RC_ASSERT(placement::place_bottleneck(instance.by_rank, instance.topology).bottleneck_bound <=
              ilp.bottleneck_bytes);
  });
}
#else
TEST_CASE("integer programs") { MESSAGE("SKIPPED: no lp_solve; the integer program is not tested"); }
#endif
