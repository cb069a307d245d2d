// The solvers behind balance(): Karmarkar–Karp, refinement, constraints, branch and bound, the published quadratic
// greedy.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

#include "instances.hpp"
#include "orchmllm/balance/balance.hpp"
#include "orchmllm/balance/quadratic.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/cost/packed.hpp"
#include "property.hpp"

using namespace orch;

namespace {

Cost max_of(const std::vector<Cost>& costs) {
  return costs.empty() ? 0 : *std::max_element(costs.begin(), costs.end());
}

void assert_valid(const Assignment& plan, std::span<const Cost> costs, std::uint32_t ranks) {
  RC_ASSERT(plan.rank_of.size() == costs.size());
  RC_ASSERT(plan.rank_cost == balance::rank_costs(costs, plan.rank_of, ranks));
  RC_ASSERT(plan.lower_bound <= plan.max_cost());
}

/// Constraints with storage of their own.
struct Owned {
  std::vector<Cost> costs;
  std::uint32_t ranks = 1;
  std::vector<std::uint64_t> weights;
  std::vector<std::uint32_t> speeds;
  std::vector<std::uint32_t> groups;
  Constraints constraints;

  void bind() {
    constraints.weights = weights;
    constraints.speeds = speeds;
    constraints.groups = groups;
  }
};

Owned any_constrained(std::size_t most_samples, std::uint32_t most_ranks) {
  Owned o;
  o.ranks = *rc::gen::inRange<std::uint32_t>(1, most_ranks + 1);
  const auto n = *rc::gen::inRange<std::size_t>(0, most_samples + 1);
  o.costs = *rc::gen::container<std::vector<Cost>>(n, rc::gen::inRange<Cost>(0, 60));
  o.constraints.counts = *rc::gen::element(Counts::free, Counts::free, Counts::equal, Counts::near_equal);
  if (*rc::gen::inRange(0, 3) == 0) o.constraints.min_per_rank = *rc::gen::inRange<std::uint32_t>(0, 3);
  if (*rc::gen::inRange(0, 3) == 0) o.constraints.max_per_rank = *rc::gen::inRange<std::uint32_t>(2, 6);
  if (*rc::gen::arbitrary<bool>()) {
    o.weights = *rc::gen::container<std::vector<std::uint64_t>>(n, rc::gen::inRange<std::uint64_t>(0, 20));
    o.constraints.capacity = *rc::gen::inRange<std::uint64_t>(15, 60);
  }
  if (*rc::gen::inRange(0, 3) == 0) {
    o.speeds = *rc::gen::container<std::vector<std::uint32_t>>(o.ranks, rc::gen::inRange<std::uint32_t>(1, 5));
  }
  if (*rc::gen::inRange(0, 3) == 0) {
    o.groups = *rc::gen::container<std::vector<std::uint32_t>>(n, rc::gen::inRange<std::uint32_t>(0, 5));
  }
  o.bind();
  return o;
}

/// Cost of every rank under the instance's speeds; nothing if a constraint is broken.
std::optional<Cost> judge(const Owned& o, std::span<const std::uint32_t> rank_of) {
  std::vector<Cost> load(o.ranks, 0);
  std::vector<std::uint64_t> weight(o.ranks, 0);
  std::vector<std::uint32_t> count(o.ranks, 0);
  std::map<std::uint32_t, std::uint32_t> rank_of_group;
  for (std::size_t i = 0; i < o.costs.size(); ++i) {
    load[rank_of[i]] += o.costs[i];
    ++count[rank_of[i]];
    if (!o.weights.empty()) weight[rank_of[i]] += o.weights[i];
    if (!o.groups.empty() && rank_of_group.emplace(o.groups[i], rank_of[i]).first->second != rank_of[i])
      return std::nullopt;
  }
  const auto [least, most] = std::minmax_element(count.begin(), count.end());
  if (*least < o.constraints.min_per_rank || *most > o.constraints.max_per_rank) return std::nullopt;
  if (o.constraints.counts == Counts::equal && *least != *most) return std::nullopt;
  if (o.constraints.counts == Counts::near_equal && *most - *least > 1) return std::nullopt;
  if (!o.weights.empty() && *std::max_element(weight.begin(), weight.end()) > o.constraints.capacity)
    return std::nullopt;
  if (!o.speeds.empty()) {
    const Cost fastest = *std::max_element(o.speeds.begin(), o.speeds.end());
    for (std::uint32_t rank = 0; rank < o.ranks; ++rank) load[rank] = ceil_div(load[rank] * fastest, o.speeds[rank]);
  }
  return max_of(load);
}

/// Best cost over all assignments, by counting in base `ranks`; nothing if none meets the constraints.
std::optional<Cost> brute_force(const Owned& o) {
  std::optional<Cost> best;
  std::vector<std::uint32_t> rank_of(o.costs.size(), 0);
  std::uint64_t all = 1;
  for (std::size_t i = 0; i < o.costs.size(); ++i) all *= o.ranks;
  for (std::uint64_t code = 0; code < all; ++code) {
    std::uint64_t rest = code;
    for (std::uint32_t& rank : rank_of) {
      rank = static_cast<std::uint32_t>(rest % o.ranks);
      rest /= o.ranks;
    }
    const auto cost = judge(o, rank_of);
    if (cost && (!best || *cost < *best)) best = cost;
  }
  return best;
}

/// Karmarkar–Karp by its definition: dense states, same order of merges.
Cost differencing_by_definition(const std::vector<Cost>& costs, std::uint32_t ranks) {
  struct State {
    std::vector<Cost> sums;
    std::uint64_t id = 0;
    [[nodiscard]] Cost spread() const { return sums.front() - sums.back(); }
  };
  std::vector<State> states;
  for (const std::uint32_t sample : descending_order(costs)) {
    State state{std::vector<Cost>(ranks, 0), 0};
    state.sums[0] = costs[sample];
    states.push_back(state);
  }
  std::uint64_t id = 1;
  const auto before = [](const State& a, const State& b) {
    return a.spread() != b.spread() ? a.spread() > b.spread() : a.id < b.id;
  };
  while (states.size() > 1) {
    std::stable_sort(states.begin(), states.end(), before);
    State merged = states[0];
    for (std::uint32_t i = 0; i < ranks; ++i) merged.sums[i] += states[1].sums[ranks - 1 - i];
    std::sort(merged.sums.begin(), merged.sums.end(), std::greater<>());
    merged.id = id++;
    states.erase(states.begin(), states.begin() + 2);
    states.push_back(merged);
  }
  return states.empty() ? 0 : states[0].sums[0];
}

}  // namespace

TEST_CASE("karmarkar-karp: valid, and as flat as its definition") {
  test::check_property("karmarkar-karp against dense states", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 9);
    const auto costs = *rc::gen::container<std::vector<Cost>>(test::any_length());
    const Assignment plan = balance::karmarkar_karp(costs, ranks);
    assert_valid(plan, costs, ranks);
    RC_ASSERT(plan.max_cost() == differencing_by_definition(costs, ranks));
  });
}

TEST_CASE("refinement never raises the maximum and keeps every constraint") {
  test::check_property("refine from any valid start", [] {
    Owned o = any_constrained(60, 8);
    const auto solved = [&]() -> std::optional<Balanced> {
      try {
        return balance::balance(o.costs, o.ranks, {.constraints = o.constraints, .effort_seconds = 0.001});
      } catch (const Infeasible&) {
        return std::nullopt;
      }
    }();
    if (!solved) return;
    const Assignment refined =
        balance::refine(o.costs, solved->assignment.rank_of, o.ranks, o.constraints, {.target_gap = 0});
    const auto cost = judge(o, refined.rank_of);
    RC_ASSERT(cost.has_value());
    RC_ASSERT(*cost == refined.max_cost());
    RC_ASSERT(*cost <= solved->assignment.max_cost());
  });
}

TEST_CASE("exact: the optimum of every cost and policy, or a true verdict") {
  test::check_property("exact against brute force", [] {
    const Owned o = any_constrained(7, 4);
    const auto optimum = brute_force(o);
    try {
      const Assignment plan = balance::exact(o.costs, o.ranks, o.constraints);
      const auto cost = judge(o, plan.rank_of);
      RC_ASSERT(cost.has_value());
      RC_ASSERT(optimum.has_value());
      RC_ASSERT(*cost == *optimum);
      RC_ASSERT(plan.max_cost() == *optimum);
      RC_ASSERT(plan.lower_bound == *optimum);
    } catch (const Infeasible&) {
      RC_ASSERT(!optimum.has_value());
    }
  });
}

TEST_CASE("exact: ten thousand instances of up to ten samples") {
  if (std::getenv("ORCHMLLM_LONG") == nullptr) {
    MESSAGE("SKIPPED: set ORCHMLLM_LONG=1 for the long comparison with brute force");
    return;
  }
  Random random(2);
  for (int i = 0; i < 10'000; ++i) {
    Owned o;
    o.ranks = 1 + static_cast<std::uint32_t>(random.below(3));
    o.costs.resize(random.below(11));
    for (Cost& cost : o.costs) cost = random.below(1000);
    o.constraints.counts = std::array{Counts::free, Counts::equal, Counts::near_equal}[random.below(3)];
    if (random.below(2) == 0) {
      for (std::size_t s = 0; s < o.costs.size(); ++s) o.weights.push_back(random.below(20));
      o.constraints.capacity = 20 + random.below(60);
    }
    if (random.below(3) == 0) {
      for (std::uint32_t rank = 0; rank < o.ranks; ++rank)
        o.speeds.push_back(1 + static_cast<std::uint32_t>(random.below(4)));
    }
    o.bind();
    const auto optimum = brute_force(o);
    try {
      const Assignment plan = balance::exact(o.costs, o.ranks, o.constraints);
      REQUIRE(optimum.has_value());
      REQUIRE(plan.max_cost() == *optimum);
      REQUIRE(judge(o, plan.rank_of) == optimum);
    } catch (const Infeasible&) {
      REQUIRE(!optimum.has_value());
    }
  }
}

TEST_CASE("exact: the optimum of convolution + packed costs") {
  test::check_property("exact convolution + packed against brute force", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 5);
    const auto n = *rc::gen::inRange<std::size_t>(0, 9);
    const ConvPackedCost cost{.conv_alpha = *rc::gen::inRange<Cost>(0, 5), .packed = {.alpha = 1, .beta = 1}};
    std::vector<ConvPackedCost::Batch> samples;
    for (std::size_t i = 0; i < n; ++i) {
      samples.push_back(cost.batch(*rc::gen::container<std::vector<std::uint32_t>>(
          *rc::gen::inRange<std::size_t>(0, 3), rc::gen::inRange<std::uint32_t>(0, 40))));
    }
    const Assignment plan = balance::exact(samples, ranks, cost);
    const Cost optimum = test::brute_force(n, ranks, [&](std::span<const std::uint32_t> rank_of) {
      return max_of(balance::conv_packed_rank_costs(samples, rank_of, ranks, cost));
    });
    RC_ASSERT(plan.max_cost() == optimum);
    RC_ASSERT(plan.lower_bound == optimum);
    RC_ASSERT(plan.rank_cost == balance::conv_packed_rank_costs(samples, plan.rank_of, ranks, cost));
  });
}

TEST_CASE("an infeasible capacity names the smallest one that would do") {
  test::check_property("capacity verdict against brute force", [] {
    Owned o;
    o.ranks = *rc::gen::inRange<std::uint32_t>(1, 4);
    const auto n = *rc::gen::inRange<std::size_t>(1, 8);
    o.weights = *rc::gen::container<std::vector<std::uint64_t>>(n, rc::gen::inRange<std::uint64_t>(1, 20));
    o.costs.assign(n, 1);
    o.constraints.capacity = 1000;
    o.bind();
    std::uint64_t smallest = 1;
    for (;; ++smallest) {
      o.constraints.capacity = smallest;
      if (brute_force(o)) break;
    }
    o.constraints.capacity = smallest;
    RC_ASSERT(
        judge(o, balance::balance(o.costs, o.ranks, {.constraints = o.constraints}).assignment.rank_of).has_value());
    o.constraints.capacity = smallest - 1;
    if (*std::max_element(o.weights.begin(), o.weights.end()) >= smallest) return;  // one sample alone is too heavy
    try {
      (void)balance::balance(o.costs, o.ranks, {.constraints = o.constraints});
      RC_FAIL("a capacity below the smallest was met");
    } catch (const Infeasible& error) {
      RC_ASSERT(std::string(error.what()).find("the smallest that would do is " + std::to_string(smallest)) !=
                std::string::npos);
    }
  });
}

TEST_CASE("balance: constraints hold or the verdict is true; bounds hold") {
  test::check_property("balance against brute force", [] {
    const Owned o = any_constrained(7, 3);
    const auto optimum = brute_force(o);
    // With hardly any effort the greedy paths run, with the default the exact one.
    const double effort = *rc::gen::element(1e-4, 0.05);
    try {
      const Balanced result =
          balance::balance(o.costs, o.ranks, {.constraints = o.constraints, .effort_seconds = effort});
      const auto cost = judge(o, result.assignment.rank_of);
      RC_ASSERT(cost.has_value());
      RC_ASSERT(*cost == result.assignment.max_cost());
      RC_ASSERT(result.assignment.lower_bound <= *optimum);
      RC_ASSERT(!result.reason.empty());
    } catch (const Infeasible&) {
      RC_ASSERT(!optimum.has_value());
    }
  });
}

TEST_CASE("balance: larger free instances are valid, and equal things on any ranks give equal maxima") {
  test::check_property("balance, free", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 24);
    auto costs = *rc::gen::container<std::vector<Cost>>(*rc::gen::inRange<std::size_t>(13, 200), test::any_length());
    const Balanced result = balance::balance(costs, ranks);
    assert_valid(result.assignment, costs, ranks);
    RC_ASSERT(result.assignment.max_cost() <= balance::greedy(costs, ranks).max_cost());
    RC_ASSERT(balance::balance(costs, ranks).assignment.fingerprint() == result.assignment.fingerprint());
  });
  test::check_property("balance, equal counts", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 10);
    const auto each = *rc::gen::inRange<std::size_t>(2, 20);
    const auto costs = *rc::gen::container<std::vector<Cost>>(each * ranks, test::any_length());
    const Balanced result = balance::balance(costs, ranks, {.constraints = {.counts = Counts::equal}});
    assert_valid(result.assignment, costs, ranks);
    std::vector<std::size_t> count(ranks, 0);
    for (const std::uint32_t rank : result.assignment.rank_of) ++count[rank];
    for (const std::size_t c : count) RC_ASSERT(c == each);
  });
}

TEST_CASE("the order of samples changes who gets what, never how much: loads depend on the costs alone") {
  test::check_property("permuted samples", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 12);
    const auto costs =
        *rc::gen::container<std::vector<Cost>>(*rc::gen::inRange<std::size_t>(0, 120), test::any_length());
    std::vector<Cost> shuffled;
    const Random random(*rc::gen::arbitrary<std::uint64_t>());
    for (const std::uint32_t i : permutation(static_cast<std::uint32_t>(costs.size()), random))
      shuffled.push_back(costs[i]);
    const auto loads = [&](Assignment plan) {
      std::sort(plan.rank_cost.begin(), plan.rank_cost.end());
      return plan.rank_cost;
    };
    RC_ASSERT(loads(balance::greedy(costs, ranks)) == loads(balance::greedy(shuffled, ranks)));
    RC_ASSERT(loads(balance::karmarkar_karp(costs, ranks)) == loads(balance::karmarkar_karp(shuffled, ranks)));
    RC_ASSERT(loads(balance::balance(costs, ranks).assignment) == loads(balance::balance(shuffled, ranks).assignment));
  });
}

TEST_CASE("home is kept where moving gains too little") {
  const std::vector<Cost> costs{10, 10, 10, 10, 9, 10, 10, 10, 10, 10, 10, 10, 10, 10};
  const std::vector<std::uint32_t> home{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1};
  const Balanced kept = balance::balance(costs, 2, {.home_rank = home, .min_gain = 0.05});
  CHECK(!kept.moved);
  CHECK(kept.assignment.rank_of == home);
  CHECK(kept.imbalance_before == kept.assignment.imbalance());
  const std::vector<std::uint32_t> skewed{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1};
  const Balanced moved = balance::balance(costs, 2, {.home_rank = skewed, .min_gain = 0.05});
  CHECK(moved.moved);
  CHECK(moved.imbalance_before > moved.assignment.imbalance());
}

TEST_CASE("quadratic: valid; with no tolerance it is LPT on lengths") {
  test::check_property("published quadratic greedy", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 8);
    const auto lengths = *rc::gen::container<std::vector<std::uint64_t>>(rc::gen::inRange<std::uint64_t>(0, 5000));
    const PackedCost cost{.alpha = 100, .beta = 1};
    std::vector<Cost> costs;
    for (const std::uint64_t length : lengths) costs.push_back(cost(length));
    const Assignment plan = balance::quadratic(lengths, ranks, cost, *rc::gen::inRange<std::uint64_t>(0, 2000));
    assert_valid(plan, costs, ranks);
    const Assignment linear = balance::quadratic(lengths, ranks, {.alpha = 1}, 0);
    RC_ASSERT(linear.max_cost() == balance::greedy(lengths, ranks).max_cost());
  });
}

TEST_CASE("contradictory constraints are refused by name") {
  const std::vector<Cost> costs{1, 2, 3};
  const std::vector<std::uint64_t> one_weight{1};
  const std::vector<std::uint32_t> slow{1, 0};
  const auto solve = [&](const Constraints& constraints) {
    (void)balance::balance(costs, 2, {.constraints = constraints});
  };
  CHECK_THROWS_WITH_AS(solve({.weights = one_weight, .capacity = 5}), doctest::Contains("weights: 1 given, 3 needed"),
                       InvalidInput);
  CHECK_THROWS_WITH_AS(solve({.speeds = slow}), doctest::Contains("speed of rank 1"), InvalidInput);
  CHECK_THROWS_WITH_AS(solve({.min_per_rank = 3, .max_per_rank = 2}), doctest::Contains("above max_per_rank"),
                       InvalidInput);
  CHECK_THROWS_WITH_AS(solve({.max_per_rank = 1}), doctest::Contains("a maximum of 2 would do"), Infeasible);
  CHECK_THROWS_WITH_AS(solve({.counts = Counts::equal}), doctest::Contains("near-equal"), Infeasible);
}

TEST_CASE("equal counts stay flat on heavy tails, where grouping by rank of length collapses") {
  for (const std::uint32_t ranks : {8U, 64U, 256U}) {
    Random random(ranks);
    std::vector<Cost> costs(std::size_t{ranks} * 32);
    for (Cost& cost : costs) {
      const double u = random.uniform() * 20;
      const auto length = 1 + static_cast<Cost>(u * u * u);
      cost = 24576 * length + length * length;
    }
    const Balanced result = balance::balance(costs, ranks, {.constraints = {.counts = Counts::equal}});
    CHECK(result.assignment.gap() <= 0.005);
  }
}

TEST_CASE("shared cases with constraints") {
  const auto shared = test::shared_folder();
  if (!shared) return;
  int ran = 0;
  for (const auto& test_case : test::read_json(*shared / "cases" / "balance.json")) {
    if (!test_case.contains("lengths") || test_case.value("cost", nlohmann::json()) == "padded") continue;
    ++ran;
    const std::string name = test_case.at("name");
    CAPTURE(name);
    const auto lengths = test_case.at("lengths").get<std::vector<std::uint64_t>>();
    const auto ranks = test_case.at("ranks").get<std::uint32_t>();
    const auto& expect = test_case.at("expect");
    Owned o;
    o.ranks = ranks;
    const std::string counts = test_case.value("counts", "free");
    o.constraints.counts = counts == "equal"        ? Counts::equal
                           : counts == "near_equal" ? Counts::near_equal
                                                    : Counts::free;
    o.constraints.min_per_rank = test_case.value("min_per_rank", 0U);
    if (test_case.contains("capacity")) {
      o.weights = lengths;
      o.constraints.capacity = test_case["capacity"];
    }
    if (test_case.contains("speeds")) o.speeds = test_case["speeds"].get<std::vector<std::uint32_t>>();
    if (test_case.contains("groups")) o.groups = test_case["groups"].get<std::vector<std::uint32_t>>();
    o.bind();
    const auto solve = [&] {
      PackedCost cost;
      if (test_case.contains("cost")) cost = {.alpha = test_case["cost"]["alpha"], .beta = test_case["cost"]["beta"]};
      for (const std::uint64_t length : lengths) o.costs.push_back(cost(length));
      return balance::balance(o.costs, ranks, {.constraints = o.constraints}).assignment;
    };
    if (expect.contains("error")) {
      std::string message;
      std::string kind;
      try {
        (void)solve();
      } catch (const Infeasible& error) {
        kind = "infeasible";
        message = error.what();
      } catch (const Overflow& error) {
        kind = "overflow";
        message = error.what();
      }
      CHECK(kind == expect["error"].get<std::string>());
      for (const auto& number : expect.value("names", nlohmann::json::array())) {
        CHECK(message.find(number.get<std::string>()) != std::string::npos);
      }
      continue;
    }
    const Assignment plan = solve();
    CHECK(judge(o, plan.rank_of).has_value());
    std::vector<std::uint64_t> load(ranks, 0);
    std::vector<std::uint32_t> count(ranks, 0);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      load[plan.rank_of[i]] += lengths[i];
      ++count[plan.rank_of[i]];
    }
    if (expect.contains("max")) CHECK(plan.max_cost() == expect["max"].get<Cost>());
    if (expect.contains("optimum")) CHECK(plan.max_cost() == expect["optimum"].get<Cost>());
    if (expect.contains("max_at_most")) CHECK(plan.max_cost() <= expect["max_at_most"].get<Cost>());
    if (expect.contains("max_over_bound_at_most")) {
      CHECK(static_cast<double>(plan.max_cost()) <=
            expect["max_over_bound_at_most"].get<double>() * static_cast<double>(plan.lower_bound));
    }
    if (expect.contains("counts_sorted")) {
      std::sort(count.begin(), count.end());
      CHECK(count == expect["counts_sorted"].get<std::vector<std::uint32_t>>());
    }
    if (expect.contains("loads")) CHECK(load == expect["loads"].get<std::vector<std::uint64_t>>());
  }
  CHECK(ran >= 20);
}
