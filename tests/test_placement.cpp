#include <algorithm>
#include <numeric>
#include <set>

#include "instances.hpp"
#include "orchmllm/placement/flow.hpp"
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

/// Batches of a few pieces each from random ranks, on nodes of unequal size.
Instance any_instance(std::uint32_t most_nodes, std::uint32_t most_ranks_a_node) {
  std::vector<std::uint32_t> sizes(*rc::gen::inRange<std::size_t>(1, most_nodes + 1));
  for (auto& size : sizes) size = *rc::gen::inRange<std::uint32_t>(1, most_ranks_a_node + 1);
  Instance instance{topology(sizes), {}};
  const std::uint32_t ranks = instance.topology.ranks();
  std::vector<std::uint32_t> from;
  std::vector<std::uint32_t> to;
  std::vector<std::uint64_t> bytes;
  for (std::uint32_t batch = 0; batch < ranks; ++batch) {
    for (auto pieces = *rc::gen::inRange(0, 5); pieces > 0; --pieces) {
      from.push_back(*rc::gen::inRange<std::uint32_t>(0, ranks));
      to.push_back(batch);
      bytes.push_back(*rc::gen::inRange<std::uint64_t>(0, 100));
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
    best.first = std::min(best.first, placement::total_volume(volumes));
    best.second = std::min(best.second, volumes.worst());
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
}

}  // namespace

TEST_CASE("topologies") {
  const Topology t = uniform_topology(10, 4);
  CHECK(t.nodes() == 3);
  CHECK(t.size(2) == 2);
  CHECK(t.node_of[9] == 2);
  CHECK_THROWS_AS((void)uniform_topology(0, 4), InvalidInput);
  const std::vector<std::uint32_t> sizes{2, 0};
  CHECK_THROWS_AS((void)topology(sizes), InvalidInput);
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
  });
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
  });
}
#else
TEST_CASE("integer programs") { MESSAGE("SKIPPED: no lp_solve; the integer program is not tested"); }
#endif
