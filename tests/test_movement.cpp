#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>

#include "instances.hpp"
#include "orchmllm/balance/movement.hpp"
#include "orchmllm/base/random.hpp"
#include "property.hpp"

using namespace orch;

namespace {

/// Samples under one of the three costs, with what constrains them.
struct Instance {
  enum class Kind { additive, conv, padded } kind = Kind::additive;
  std::vector<Cost> costs;  ///< additive costs
  std::vector<std::uint64_t> lengths;
  std::vector<ConvPackedCost::Batch> batches;
  ConvPackedCost conv;
  PaddedCost padded;
  std::vector<std::uint64_t> bytes;
  std::vector<std::uint32_t> home;
  Topology topology;
  double tolerance = 0;

  Counts counts = Counts::free;
  std::uint32_t min_per_rank = 0;
  std::uint32_t max_per_rank = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint64_t> weights;
  std::uint64_t capacity = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::uint32_t> speeds;
  std::vector<std::uint32_t> groups;

  [[nodiscard]] std::uint32_t ranks() const { return topology.ranks(); }
  [[nodiscard]] Constraints constraints() const {
    return {.counts = counts,
            .min_per_rank = min_per_rank,
            .max_per_rank = max_per_rank,
            .weights = weights,
            .capacity = capacity,
            .speeds = speeds,
            .groups = groups};
  }
  [[nodiscard]] Movement move() const {
    const MovementOptions options{.tolerance = tolerance, .constraints = constraints()};
    if (kind == Kind::additive) return balance::movement(costs, bytes, home, topology, options);
    if (kind == Kind::conv) return balance::movement(batches, conv, bytes, home, topology, options);
    return balance::movement(lengths, padded, bytes, home, topology, options);
  }
  /// True costs, written down independently of the solver.
  [[nodiscard]] std::vector<Cost> rank_costs(std::span<const std::uint32_t> rank_of) const {
    std::vector<Cost> result;
    const std::uint32_t fastest = speeds.empty() ? 1 : *std::max_element(speeds.begin(), speeds.end());
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      std::uint64_t count = 0;
      std::uint64_t units = 0;
      std::uint64_t longest = 0;
      Cost sum = 0;
      for (std::size_t s = 0; s < rank_of.size(); ++s) {
        if (rank_of[s] != rank) continue;
        ++count;
        if (kind == Kind::additive) {
          sum += costs[s];
        } else if (kind == Kind::conv) {
          units += batches[s].units;
          longest = std::max(longest, batches[s].longest);
          sum += batches[s].packed;
        } else {
          longest = std::max(longest, lengths[s]);
        }
      }
      if (kind == Kind::conv) sum += conv.conv_alpha * units * longest;
      if (kind == Kind::padded) sum = count * (padded.alpha * longest + padded.beta * longest * longest);
      result.push_back(speeds.empty() ? sum : (sum * fastest + speeds[rank] - 1) / speeds[rank]);
    }
    return result;
  }
  [[nodiscard]] Cost max_cost(std::span<const std::uint32_t> rank_of) const {
    const auto all = rank_costs(rank_of);
    return *std::max_element(all.begin(), all.end());
  }
  /// Counts, capacity and groups, also written down independently.
  [[nodiscard]] bool feasible(std::span<const std::uint32_t> rank_of) const {
    std::vector<std::uint64_t> count(ranks(), 0);
    std::vector<std::uint64_t> weight(ranks(), 0);
    std::map<std::uint32_t, std::uint32_t> rank_of_group;
    for (std::size_t s = 0; s < rank_of.size(); ++s) {
      ++count[rank_of[s]];
      if (!weights.empty()) weight[rank_of[s]] += weights[s];
      if (!groups.empty() && rank_of_group.emplace(groups[s], rank_of[s]).first->second != rank_of[s]) return false;
    }
    const auto [least, most] = std::minmax_element(count.begin(), count.end());
    if (counts == Counts::equal && *least != *most) return false;
    if (counts == Counts::near_equal && *most - *least > 1) return false;
    if (*least < min_per_rank || *most > max_per_rank) return false;
    return weights.empty() || *std::max_element(weight.begin(), weight.end()) <= capacity;
  }
  /// Bytes between nodes, and between ranks at all.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> traffic(std::span<const std::uint32_t> rank_of) const {
    std::pair<std::uint64_t, std::uint64_t> sum{0, 0};
    for (std::size_t s = 0; s < rank_of.size(); ++s) {
      if (rank_of[s] != home[s]) sum.second += bytes[s];
      if (topology.node_of[rank_of[s]] != topology.node_of[home[s]]) sum.first += bytes[s];
    }
    return sum;
  }
  /// Largest cost of the plain solver; the constraints must be satisfiable.
  [[nodiscard]] Cost plain() const {
    if (constraints().unconstrained() && kind == Kind::conv)
      return balance::conv_packed(batches, ranks(), conv).max_cost();
    if (constraints().unconstrained() && kind == Kind::padded)
      return balance::padded(lengths, ranks(), padded).max_cost();
    std::vector<Cost> alone = costs;
    if (kind == Kind::conv) std::transform(batches.begin(), batches.end(), std::back_inserter(alone), conv);
    if (kind == Kind::padded) {
      for (const std::uint64_t length : lengths) alone.push_back(padded.per_sample(length));
    }
    return max_cost(
        balance::balance(alone, ranks(), {.constraints = constraints(), .target_gap = tolerance}).assignment.rank_of);
  }
};

Instance any_instance(std::size_t most_samples, std::uint32_t most_ranks) {
  Instance i;
  i.kind = *rc::gen::element(Instance::Kind::additive, Instance::Kind::conv, Instance::Kind::padded);
  const auto ranks = *rc::gen::inRange<std::uint32_t>(1, most_ranks + 1);
  i.topology = uniform_topology(ranks, *rc::gen::inRange<std::uint32_t>(1, ranks + 1));
  const auto n = *rc::gen::inRange<std::size_t>(0, most_samples + 1);
  const auto lengths = *rc::gen::container<std::vector<std::uint64_t>>(n, test::any_length());
  if (i.kind == Instance::Kind::additive) i.costs = lengths;
  if (i.kind == Instance::Kind::padded) {
    i.lengths = lengths;
    i.padded = {*rc::gen::inRange<Cost>(0, 4), *rc::gen::inRange<Cost>(0, 3)};
  }
  if (i.kind == Instance::Kind::conv) {
    i.conv = {*rc::gen::inRange<Cost>(0, 4), {.gamma = 1, .alpha = 2, .beta = *rc::gen::inRange<Cost>(0, 2)}};
    for (const std::uint64_t length : lengths) {
      std::vector<std::uint32_t> units;
      for (auto left = *rc::gen::inRange(0, 4); left > 0; --left)
        units.push_back(static_cast<std::uint32_t>(length / static_cast<std::uint64_t>(left)));
      i.batches.push_back(i.conv.batch(units));
    }
  }
  i.bytes = *rc::gen::container<std::vector<std::uint64_t>>(n, rc::gen::inRange<std::uint64_t>(0, 1000));
  i.home = *rc::gen::container<std::vector<std::uint32_t>>(n, rc::gen::inRange<std::uint32_t>(0, ranks));
  i.tolerance = *rc::gen::element(0.0, 0.01, 0.1, 1.0);
  return i;
}

/// Any combination of constraints; the larger `capacity_slack`, the more of them can be met.
void constrain(Instance& i, std::uint64_t capacity_slack) {
  const auto n = static_cast<std::uint32_t>(i.home.size());
  if (*rc::gen::arbitrary<bool>()) {
    i.counts = *rc::gen::element(Counts::free, Counts::equal, Counts::near_equal);
    if (i.counts == Counts::free) {
      i.min_per_rank = *rc::gen::inRange<std::uint32_t>(0, n / i.ranks() + 1);
      i.max_per_rank = *rc::gen::inRange<std::uint32_t>(n / i.ranks() + 1, n + 2);
    }
  }
  if (*rc::gen::arbitrary<bool>()) {
    i.weights = *rc::gen::container<std::vector<std::uint64_t>>(n, rc::gen::inRange<std::uint64_t>(0, 100));
    const std::uint64_t all = std::accumulate(i.weights.begin(), i.weights.end(), std::uint64_t{0});
    i.capacity = all / i.ranks() + *rc::gen::inRange<std::uint64_t>(capacity_slack, capacity_slack + 150);
  }
  if (*rc::gen::inRange(0, 3) == 0) {
    i.speeds = *rc::gen::container<std::vector<std::uint32_t>>(i.ranks(), rc::gen::inRange<std::uint32_t>(1, 5));
  }
  if (*rc::gen::inRange(0, 3) == 0) {
    i.groups = *rc::gen::container<std::vector<std::uint32_t>>(n, rc::gen::inRange<std::uint32_t>(0, n + 1));
  }
}

/// What holds for every result.
void check_result(const Instance& i, const Movement& m) {
  RC_ASSERT(m.assignment.rank_of.size() == i.home.size());
  RC_ASSERT(m.assignment.rank_cost == i.rank_costs(m.assignment.rank_of));
  RC_ASSERT(m.assignment.lower_bound <= m.assignment.max_cost());
  RC_ASSERT(m.assignment.lower_bound <= m.limit);
  RC_ASSERT(i.feasible(m.assignment.rank_of));
  RC_ASSERT(m.met == (m.assignment.max_cost() <= m.limit));
  RC_ASSERT(m.limit <= m.target);
  RC_ASSERT(m.assignment.max_cost() <= m.target);
  const auto [inter, moved] = i.traffic(m.assignment.rank_of);
  RC_ASSERT(m.inter_node_bytes == inter);
  RC_ASSERT(m.moved_bytes() == moved);
  if (m.met) {
    RC_ASSERT(m.inter_node_bound <= inter);
    RC_ASSERT(m.moved_bound <= moved);
  }
  if (i.feasible(i.home) && i.max_cost(i.home) <= m.limit) RC_ASSERT(m.moved_samples == 0U);
  if (m.met) return;
  const Cost plain = i.plain();
  if (i.kind == Instance::Kind::conv) {
    RC_ASSERT(m.target <= plain + static_cast<Cost>(static_cast<double>(plain) * i.tolerance) + 1);
  } else {
    RC_ASSERT(m.assignment.max_cost() <= plain);
  }
}

/// The result; nothing where the constraints cannot be met.
std::optional<Movement> moved(const Instance& i) {
  try {
    return i.move();
  } catch (const Infeasible&) {
    return std::nullopt;
  }
}

bool long_run() { return std::getenv("ORCHMLLM_LONG") != nullptr; }

}  // namespace

TEST_CASE("movement: valid, true costs, home where nothing is gained, bounds below what is moved") {
  test::check_property("movement invariants", [] {
    const Instance i = any_instance(120, 16);
    check_result(i, i.move());
  });
}

TEST_CASE("movement: constraints of every kind are met, or the call says that they cannot be") {
  test::check_property("constrained movement invariants", [] {
    Instance i = any_instance(60, 8);
    constrain(i, 100);
    if (const auto m = moved(i)) check_result(i, *m);
  });
}

TEST_CASE("movement: the bounds hold for every assignment under the limit") {
  test::check_property("movement bounds against brute force", [] {
    Instance i = any_instance(7, 3);
    if (*rc::gen::arbitrary<bool>()) constrain(i, 0);
    i.tolerance = 0.2;
    const auto m = moved(i);
    std::vector<std::uint32_t> rank_of(i.home.size(), 0);
    std::uint64_t all = 1;
    for (std::size_t s = 0; s < rank_of.size(); ++s) all *= i.ranks();
    Cost optimum = ~Cost{0};
    for (std::uint64_t code = 0; code < all; ++code) {
      std::uint64_t rest = code;
      for (std::uint32_t& rank : rank_of) {
        rank = static_cast<std::uint32_t>(rest % i.ranks());
        rest /= i.ranks();
      }
      const Cost most = i.max_cost(rank_of);
      if (i.feasible(rank_of)) optimum = std::min(optimum, most);
      if (!m || most > m->limit) continue;
      const auto [inter, moved_bytes] = i.traffic(rank_of);
      RC_ASSERT(m->moved_bound <= moved_bytes);
      RC_ASSERT(m->inter_node_bound <= inter);
    }
    RC_ASSERT(m.has_value() == (optimum != ~Cost{0}));
    if (m) RC_ASSERT(m->assignment.lower_bound <= optimum);
    // So few samples are solved exactly where moving little does not do.
    if (m && i.kind != Instance::Kind::conv && i.kind != Instance::Kind::padded)
      RC_ASSERT(m->met == (optimum <= m->limit));
  });
}

TEST_CASE("movement: one per cent is met on heavy tails with a small part of the bytes") {
  for (const std::uint32_t ranks : {64U, 320U, 2560U}) {
    if (ranks == 2560U && !long_run()) continue;
    Random random(ranks);
    std::vector<Cost> costs(ranks * 32);
    // A heavy tail without transcendental functions: the cube of a uniform number, 1 … 8,000.
    for (Cost& cost : costs) {
      const double u = random.uniform() * 20;
      cost = 1 + static_cast<Cost>(u * u * u);
    }
    std::vector<std::uint32_t> home(costs.size());
    for (std::size_t s = 0; s < home.size(); ++s) home[s] = static_cast<std::uint32_t>(s / 32);
    const Topology topology = uniform_topology(ranks, 8);
    const auto total = static_cast<double>(std::accumulate(costs.begin(), costs.end(), Cost{0}));

    const Movement m = balance::movement(costs, costs, home, topology);
    CHECK(m.met);
    CHECK(m.assignment.gap() <= 0.01);
    CHECK(static_cast<double>(m.inter_node_bytes) <= 0.08 * total);
    CHECK(static_cast<double>(m.inter_node_bytes) <= 1.2 * static_cast<double>(m.inter_node_bound));
    CHECK(static_cast<double>(m.moved_bytes()) <= 1.1 * static_cast<double>(m.moved_bound));

    // Equal counts: samples go in exchange for others, so more bytes move, still few of them between nodes.
    const Movement equal = balance::movement(costs, costs, home, topology, {.constraints = {.counts = Counts::equal}});
    CHECK(equal.met);
    CHECK(static_cast<double>(equal.inter_node_bytes) <= 0.12 * total);
  }
}

TEST_CASE("movement prefers samples that are cheap to move") {
  // Rank 0 must give 100 away: one sample of 100 that weighs 5 bytes, or one that weighs 5,000.
  const std::vector<Cost> costs{100, 100, 100};
  const std::vector<std::uint64_t> bytes{5000, 5, 1};
  const std::vector<std::uint32_t> home{0, 0, 1};
  const Movement m = balance::movement(costs, bytes, home, uniform_topology(3, 3), {.tolerance = 0});
  CHECK(m.met);
  CHECK(m.moved_bytes() == 5);
  CHECK(m.moved_bound == 5);
}

TEST_CASE("movement keeps true costs under padding: the long sample goes where long ones are") {
  // Rank 0 pays 3 · 100 for one long sample; rank 1 holds a long one already. Costs 3·100 and 1·100; bound 200.
  const std::vector<std::uint64_t> lengths{100, 10, 10, 100};
  const std::vector<std::uint64_t> bytes{1000, 10, 10, 1000};
  const std::vector<std::uint32_t> home{0, 0, 0, 1};
  const Movement m = balance::movement(lengths, PaddedCost{}, bytes, home, uniform_topology(2, 2), {.tolerance = 0});
  CHECK(m.assignment.lower_bound == 200);
  CHECK(m.met);
  CHECK(m.moved_bytes() == 10);
}

TEST_CASE("a group is at home where most of its bytes are") {
  const std::vector<Cost> costs{1, 1, 1, 1};
  const std::vector<std::uint64_t> bytes{10, 20, 5, 7};
  const std::vector<std::uint32_t> home{0, 1, 1, 0};
  const std::vector<std::uint32_t> groups{0, 0, 1, 2};
  const Movement m = balance::movement(costs, bytes, home, uniform_topology(2, 1),
                                       {.tolerance = 1, .constraints = {.groups = groups}});
  CHECK(m.met);
  CHECK(m.assignment.rank_of == std::vector<std::uint32_t>{1, 1, 1, 0});
  CHECK(m.inter_node_bytes == 10);
}

TEST_CASE("movement: faster ranks may keep more") {
  const std::vector<Cost> costs(8, 10);
  const std::vector<std::uint64_t> bytes(8, 1);
  const std::vector<std::uint32_t> home{0, 0, 0, 0, 0, 0, 1, 1};
  const std::vector<std::uint32_t> speeds{3, 1};
  const Movement m = balance::movement(costs, bytes, home, uniform_topology(2, 2),
                                       {.tolerance = 0, .constraints = {.speeds = speeds}});
  CHECK(m.met);
  CHECK(m.moved_samples == 0);
}

TEST_CASE("movement refuses what does not fit together") {
  const std::vector<Cost> costs{1, 2};
  const std::vector<std::uint64_t> bytes{1};
  const std::vector<std::uint32_t> home{0, 5};
  const Topology two = uniform_topology(2, 1);
  CHECK_THROWS_AS((void)balance::movement(costs, bytes, home, two), InvalidInput);
  CHECK_THROWS_AS((void)balance::movement(costs, costs, home, two), InvalidInput);
  const std::vector<std::uint32_t> good{0, 1};
  CHECK_THROWS_AS((void)balance::movement(costs, costs, good, two, {.tolerance = -1}), InvalidInput);
  CHECK_THROWS_AS(
      (void)balance::movement(costs, costs, good, two, {.constraints = {.min_per_rank = 2, .max_per_rank = 1}}),
      InvalidInput);
  CHECK_THROWS_AS((void)balance::movement(costs, costs, good, two, {.constraints = {.min_per_rank = 2}}), Infeasible);
  const std::vector<std::uint32_t> standing{1, 0};
  CHECK_THROWS_AS((void)balance::movement(costs, costs, good, two, {.constraints = {.speeds = standing}}),
                  InvalidInput);
  CHECK_THROWS_AS((void)balance::movement(costs, costs, good, two, {.constraints = {.weights = costs, .capacity = 1}}),
                  Infeasible);
}

TEST_CASE("movement never wraps: costs near 2^64 work or throw Overflow") {
  constexpr Cost half = Cost{1} << 63U;
  const Topology two = uniform_topology(2, 2);
  const std::vector<std::uint32_t> home{0, 0};
  const std::vector<std::uint64_t> bytes{half, half - 1};
  const Movement m = balance::movement(std::vector<Cost>{half, half - 1}, bytes, home, two, {.tolerance = 0.01});
  CHECK(m.met);
  CHECK(m.moved_samples == 1);
  CHECK_THROWS_AS((void)balance::movement(std::vector<Cost>{half, half}, bytes, home, two), Overflow);
  CHECK_THROWS_AS((void)balance::movement(std::vector<Cost>{half, 1}, bytes, home, two, {.tolerance = 1e6}), Overflow);
  const std::vector<ConvPackedCost::Batch> batches{{2, Cost{1} << 62U, 0}, {1, 1, 0}};
  CHECK_THROWS_AS((void)balance::movement(batches, ConvPackedCost{.conv_alpha = 2, .packed = {}}, bytes, home, two),
                  Overflow);
}

TEST_CASE("everything on one rank: movement spreads it") {
  const std::size_t n = long_run() ? 40000 : 4000;
  const std::vector<std::uint32_t> home(n, 0);
  const std::vector<std::uint64_t> bytes(n, 1);
  std::vector<Cost> costs(n);
  for (std::size_t s = 0; s < n; ++s) costs[s] = 1 + s % 97;
  const Movement m = balance::movement(costs, bytes, home, uniform_topology(64, 8));
  CHECK(m.met);
  std::vector<ConvPackedCost::Batch> batches;
  for (const Cost cost : costs) batches.push_back({1, cost, 10 * cost});
  const ConvPackedCost conv{.conv_alpha = 1, .packed = {}};
  const Movement padded = balance::movement(batches, conv, bytes, home, uniform_topology(64, 64));
  CHECK(padded.assignment.max_cost() <= padded.target);
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
                                         {.tolerance = test_case["movement"]["tolerance"].get<double>()});
    CHECK(m.assignment.max_cost() == test_case["expect"]["max"].get<Cost>());
    CHECK(m.moved_bytes() == test_case["expect"]["moved"].get<std::uint64_t>());
  }
  CHECK(ran == 2);
}
