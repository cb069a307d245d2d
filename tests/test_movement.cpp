#include <algorithm>
#include <numeric>

#include "instances.hpp"
#include "orchmllm/balance/movement.hpp"
#include "orchmllm/base/random.hpp"
#include "property.hpp"

using namespace orch;

namespace {

struct Instance {
  std::vector<Cost> costs;
  std::vector<std::uint64_t> bytes;
  std::vector<std::uint32_t> home;
  Topology topology;
};

Instance any_instance(std::size_t most_samples, std::uint32_t most_ranks) {
  Instance i;
  const auto ranks = *rc::gen::inRange<std::uint32_t>(1, most_ranks + 1);
  i.topology = uniform_topology(ranks, *rc::gen::inRange<std::uint32_t>(1, ranks + 1));
  const auto n = *rc::gen::inRange<std::size_t>(0, most_samples + 1);
  i.costs = *rc::gen::container<std::vector<Cost>>(n, test::any_length());
  i.bytes = *rc::gen::container<std::vector<std::uint64_t>>(n, rc::gen::inRange<std::uint64_t>(0, 1000));
  i.home = *rc::gen::container<std::vector<std::uint32_t>>(n, rc::gen::inRange<std::uint32_t>(0, ranks));
  return i;
}

}  // namespace

TEST_CASE("movement: valid, true costs, home where nothing is gained, bounds below what is moved") {
  test::check_property("movement invariants", [] {
    const Instance i = any_instance(120, 16);
    const auto tolerance = *rc::gen::element(0.0, 0.01, 0.1, 1.0);
    const Movement m = balance::movement(i.costs, i.bytes, i.home, i.topology, tolerance);
    RC_ASSERT(m.assignment.rank_of.size() == i.costs.size());
    RC_ASSERT(m.assignment.rank_cost == balance::rank_costs(i.costs, m.assignment.rank_of, i.topology.ranks()));
    RC_ASSERT(m.met == (m.assignment.max_cost() <= m.limit));
    std::uint64_t moved = 0;
    std::uint64_t inter = 0;
    for (std::size_t s = 0; s < i.costs.size(); ++s) {
      const std::uint32_t to = m.assignment.rank_of[s];
      if (to != i.home[s]) moved += i.bytes[s];
      if (i.topology.node_of[to] != i.topology.node_of[i.home[s]]) inter += i.bytes[s];
    }
    RC_ASSERT(m.moved_bytes() == moved);
    RC_ASSERT(m.inter_node_bytes == inter);
    if (m.met) {
      RC_ASSERT(m.moved_bound <= moved);
      RC_ASSERT(m.inter_node_bound <= inter);
    }
    const auto at_home = balance::rank_costs(i.costs, i.home, i.topology.ranks());
    if (*std::max_element(at_home.begin(), at_home.end()) <= m.limit) RC_ASSERT(m.moved_samples == 0U);
    // Never flatter than asked for at the price of a worse maximum than plain LPT leaves.
    if (!m.met) RC_ASSERT(m.assignment.max_cost() <= balance::greedy(i.costs, i.topology.ranks()).max_cost());
  });
}

TEST_CASE("movement: the bounds hold for every assignment under the limit") {
  test::check_property("movement bounds against brute force", [] {
    const Instance i = any_instance(7, 3);
    const Movement m = balance::movement(i.costs, i.bytes, i.home, i.topology, 0.2);
    std::vector<std::uint32_t> rank_of(i.costs.size(), 0);
    const std::uint32_t ranks = i.topology.ranks();
    std::uint64_t all = 1;
    for (std::size_t s = 0; s < i.costs.size(); ++s) all *= ranks;
    for (std::uint64_t code = 0; code < all; ++code) {
      std::uint64_t rest = code;
      std::uint64_t moved = 0;
      std::uint64_t inter = 0;
      for (std::size_t s = 0; s < i.costs.size(); ++s, rest /= ranks) {
        rank_of[s] = static_cast<std::uint32_t>(rest % ranks);
        if (rank_of[s] != i.home[s]) moved += i.bytes[s];
        if (i.topology.node_of[rank_of[s]] != i.topology.node_of[i.home[s]]) inter += i.bytes[s];
      }
      const auto costs = balance::rank_costs(i.costs, rank_of, ranks);
      if (*std::max_element(costs.begin(), costs.end()) > m.limit) continue;
      RC_ASSERT(m.moved_bound <= moved);
      RC_ASSERT(m.inter_node_bound <= inter);
    }
  });
}

TEST_CASE("movement: one per cent is met on heavy tails with a small part of the bytes") {
  for (const std::uint32_t ranks : {64U, 320U}) {
    Random random(ranks);
    std::vector<Cost> costs(ranks * 32);
    // A heavy tail without transcendental functions: the cube of a uniform number, 1 … 8,000.
    for (Cost& cost : costs) {
      const double u = random.uniform() * 20;
      cost = 1 + static_cast<Cost>(u * u * u);
    }
    std::vector<std::uint32_t> home(costs.size());
    for (std::size_t s = 0; s < home.size(); ++s) home[s] = static_cast<std::uint32_t>(s / 32);
    const Movement m = balance::movement(costs, costs, home, uniform_topology(ranks, 8));
    const auto total = static_cast<double>(std::accumulate(costs.begin(), costs.end(), Cost{0}));
    CHECK(m.met);
    CHECK(m.assignment.gap() <= 0.01);
    CHECK(static_cast<double>(m.inter_node_bytes) <= 0.08 * total);
    CHECK(static_cast<double>(m.inter_node_bytes) <= 1.5 * static_cast<double>(m.inter_node_bound));
  }
}

TEST_CASE("movement prefers samples that are cheap to move") {
  // Rank 0 must give 100 away: one sample of 100 that weighs 5 bytes, or one that weighs 5,000.
  const std::vector<Cost> costs{100, 100, 100};
  const std::vector<std::uint64_t> bytes{5000, 5, 1};
  const std::vector<std::uint32_t> home{0, 0, 1};
  const Movement m = balance::movement(costs, bytes, home, uniform_topology(3, 3), 0);
  CHECK(m.met);
  CHECK(m.moved_bytes() == 5);
  CHECK(m.moved_bound == 5);
}

TEST_CASE("movement refuses what does not fit together") {
  const std::vector<Cost> costs{1, 2};
  const std::vector<std::uint64_t> bytes{1};
  const std::vector<std::uint32_t> home{0, 5};
  CHECK_THROWS_AS((void)balance::movement(costs, bytes, home, uniform_topology(2, 1)), InvalidInput);
  CHECK_THROWS_AS((void)balance::movement(costs, costs, home, uniform_topology(2, 1)), InvalidInput);
  const std::vector<std::uint32_t> good{0, 1};
  CHECK_THROWS_AS((void)balance::movement(costs, costs, good, uniform_topology(2, 1), -1), InvalidInput);
}

TEST_CASE("shared cases of movement") {
  const auto shared = test::shared_folder();
  if (!shared) return;
  int ran = 0;
  for (const auto& test_case : test::read_json(*shared / "cases" / "balance.json")) {
    if (!test_case.contains("movement")) continue;
    ++ran;
    std::vector<Cost> costs;
    std::vector<std::uint32_t> home;
    std::uint32_t rank = 0;
    for (const auto& lengths : test_case.at("rank_lengths")) {
      for (const auto& length : lengths) {
        costs.push_back(length.get<Cost>());
        home.push_back(rank);
      }
      ++rank;
    }
    const Movement m = balance::movement(costs, costs, home, uniform_topology(rank, rank),
                                         test_case["movement"]["tolerance"].get<double>());
    CHECK(m.assignment.max_cost() == test_case["expect"]["max"].get<Cost>());
    CHECK(m.moved_bytes() == test_case["expect"]["moved"].get<std::uint64_t>());
  }
  CHECK(ran == 2);
}
