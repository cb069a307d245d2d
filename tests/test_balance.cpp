#include <algorithm>
#include <limits>
#include <numeric>

#include "instances.hpp"
#include "orchmllm/balance/conv_packed.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/balance/padded.hpp"
#include "orchmllm/cost/packed.hpp"
#include "property.hpp"

using namespace orch;

namespace {

Cost max_of(std::vector<Cost> costs) { return costs.empty() ? 0 : *std::max_element(costs.begin(), costs.end()); }

void assert_valid(const Assignment& plan, std::size_t samples, std::uint32_t ranks) {
  RC_ASSERT(plan.rank_of.size() == samples);
  RC_ASSERT(plan.rank_cost.size() == ranks);
  for (const std::uint32_t rank : plan.rank_of) RC_ASSERT(rank < ranks);
  RC_ASSERT(plan.lower_bound <= plan.max_cost());
}

}  // namespace

TEST_CASE("greedy: every sample once, true costs, true bound, 4/3 of the optimum") {
  test::check_property("greedy against brute force", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 6);
    const auto n = *rc::gen::inRange<std::size_t>(0, 10);
    const auto costs = *rc::gen::container<std::vector<Cost>>(n, test::any_length());
    const Assignment plan = balance::greedy(costs, ranks);
    assert_valid(plan, n, ranks);
    RC_ASSERT(plan.rank_cost == balance::rank_costs(costs, plan.rank_of, ranks));
    const Cost optimum = test::brute_force(n, ranks, [&](std::span<const std::uint32_t> rank_of) {
      return max_of(balance::rank_costs(costs, rank_of, ranks));
    });
    RC_ASSERT(plan.lower_bound <= optimum);
    RC_ASSERT(plan.max_cost() >= optimum);
    RC_ASSERT(3 * ranks * plan.max_cost() <= (4 * ranks - 1) * optimum);
  });
}

TEST_CASE("greedy gives the plan of sort and least loaded rank") {
  test::check_property("greedy equals its definition", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 40);
    const auto costs = *rc::gen::container<std::vector<Cost>>(test::any_length());
    std::vector<std::uint32_t> order(costs.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return costs[a] > costs[b]; });
    std::vector<Cost> load(ranks, 0);
    std::vector<std::uint32_t> expected(costs.size());
    for (const auto sample : order) {
      const auto least = std::min_element(load.begin(), load.end());
      *least += costs[sample];
      expected[sample] = static_cast<std::uint32_t>(least - load.begin());
    }
    RC_ASSERT(balance::greedy(costs, ranks).rank_of == expected);
  });
}

TEST_CASE("padded: equal to brute force") {
  test::check_property("padded against brute force", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 5);
    const auto n = *rc::gen::inRange<std::size_t>(0, 10);
    const auto lengths = *rc::gen::container<std::vector<std::uint64_t>>(n, test::any_length());
    const PaddedCost cost{.alpha = *rc::gen::inRange<Cost>(0, 4), .beta = *rc::gen::inRange<Cost>(0, 3)};
    const Assignment plan = balance::padded(lengths, ranks, cost);
    assert_valid(plan, n, ranks);
    const Cost optimum = test::brute_force(n, ranks, [&](std::span<const std::uint32_t> rank_of) {
      return max_of(balance::padded_rank_costs(lengths, rank_of, ranks, cost));
    });
    RC_ASSERT(plan.max_cost() == optimum);
    RC_ASSERT(plan.lower_bound == optimum);
  });
}

TEST_CASE("convolution + packed: true costs and a true bound") {
  test::check_property("conv-packed against brute force", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 5);
    const auto n = *rc::gen::inRange<std::size_t>(0, 9);
    const ConvPackedCost cost{.conv_alpha = *rc::gen::inRange<Cost>(0, 5), .packed = {.alpha = 2, .beta = 1}};
    std::vector<ConvPackedCost::Batch> samples;
    for (std::size_t i = 0; i < n; ++i) {
      samples.push_back(cost.batch(*rc::gen::container<std::vector<std::uint32_t>>(
          *rc::gen::inRange<std::size_t>(0, 4), rc::gen::inRange<std::uint32_t>(0, 50))));
    }
    const Assignment plan = balance::conv_packed(samples, ranks, cost);
    assert_valid(plan, n, ranks);
    const Cost optimum = test::brute_force(n, ranks, [&](std::span<const std::uint32_t> rank_of) {
      return max_of(balance::conv_packed_rank_costs(samples, rank_of, ranks, cost));
    });
    RC_ASSERT(plan.lower_bound <= optimum);
    RC_ASSERT(plan.max_cost() >= optimum);
    if (cost.conv_alpha == 0) RC_ASSERT(3 * plan.max_cost() <= 4 * optimum);
  });
}

TEST_CASE("costs near 64 bits: right, or Overflow, never wrapped") {
  test::check_property("overflow is detected", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 5);
    auto costs = *rc::gen::container<std::vector<Cost>>(rc::gen::arbitrary<Cost>());
    const auto shift = *rc::gen::element(0U, 1U, 4U, 8U);
    __extension__ unsigned __int128 total = 0;
    for (Cost& cost : costs) {
      cost >>= shift;
      total += cost;
    }
    const bool fits = total <= std::numeric_limits<Cost>::max();
    try {
      const Assignment plan = balance::greedy(costs, ranks);
      RC_ASSERT(fits);
      __extension__ unsigned __int128 sum = 0;
      for (const Cost cost : plan.rank_cost) sum += cost;
      RC_ASSERT(sum == total);
      RC_ASSERT(plan.lower_bound <= plan.max_cost());
    } catch (const Overflow&) {
      // The pigeonhole bound adds at most the same costs, so only a total above 64 bits may end here.
      RC_ASSERT(!fits);
    }
  });
}

TEST_CASE("zero ranks are refused") {
  CHECK_THROWS_AS((void)balance::greedy({}, 0), InvalidInput);
  CHECK_THROWS_AS((void)balance::padded({}, 0), InvalidInput);
}

TEST_CASE("shared cases") {
  const auto shared = test::shared_folder();
  if (!shared) return;
  int ran = 0;
  for (const auto& test_case : test::read_json(*shared / "cases" / "balance.json")) {
    const std::string name = test_case.at("name");
    // Counts, capacity, speeds, groups, micro-batches and movement have solvers of their own.
    bool applies = test_case.contains("lengths");
    for (const auto* key : {"counts", "capacity", "speeds", "groups", "min_per_rank"})
      applies &= !test_case.contains(key);
    if (!applies) continue;
    ++ran;
    CAPTURE(name);
    const auto lengths = test_case.at("lengths").get<std::vector<std::uint64_t>>();
    const auto ranks = test_case.at("ranks").get<std::uint32_t>();
    const auto& expect = test_case.at("expect");
    const auto solve = [&] {
      if (test_case.value("cost", nlohmann::json()) == "padded") return balance::padded(lengths, ranks);
      PackedCost cost;
      if (test_case.contains("cost")) cost = {.alpha = test_case["cost"]["alpha"], .beta = test_case["cost"]["beta"]};
      std::vector<Cost> costs;
      for (const std::uint64_t length : lengths) costs.push_back(cost(length));
      return balance::greedy(costs, ranks);
    };
    if (expect.value("error", "") == "overflow") {
      CHECK_THROWS_AS((void)solve(), Overflow);
      continue;
    }
    const Assignment plan = solve();
    CHECK(plan.rank_of.size() == lengths.size());
    if (expect.contains("max")) CHECK(plan.max_cost() == expect["max"].get<Cost>());
    if (expect.contains("lower_bound")) CHECK(plan.lower_bound == expect["lower_bound"].get<Cost>());
    if (expect.contains("gap")) CHECK(plan.gap() == expect["gap"].get<double>());
    if (expect.contains("assigned")) CHECK(plan.rank_of.size() == expect["assigned"].get<std::size_t>());
    if (expect.contains("empty_ranks")) {
      std::vector<bool> used(ranks, false);
      for (const auto rank : plan.rank_of) used[rank] = true;
      CHECK(std::count(used.begin(), used.end(), false) == expect["empty_ranks"].get<int>());
    }
    if (expect.contains("optimum")) {
      const auto optimum = expect["optimum"].get<Cost>();
      CHECK(plan.lower_bound <= optimum);
      CHECK(plan.max_cost() >= optimum);
      if (plan.solver == "padded-exact") {
        CHECK(plan.max_cost() == optimum);
      } else {
        CHECK(3 * ranks * plan.max_cost() <= (4 * ranks - 1) * optimum);
      }
    }
  }
  CHECK(ran >= 12);
}
