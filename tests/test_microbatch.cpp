#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "instances.hpp"
#include "orchmllm/balance/bins_bound.hpp"
#include "orchmllm/balance/greedy_onto.hpp"
#include "orchmllm/balance/microbatch.hpp"
#include "orchmllm/base/random.hpp"
#include "property.hpp"

using namespace orch;

namespace {

struct Batch {
  std::vector<Cost> costs{};
  std::vector<std::uint64_t> tokens{};
  std::vector<std::uint32_t> home{};
  std::uint32_t ranks = 1;
};

/// Costs proportional to tokens, quadratic in them, or independent of them.
Batch any_batch(std::size_t largest, std::uint32_t most_ranks) {
  Batch batch;
  batch.ranks = *rc::gen::inRange<std::uint32_t>(1, most_ranks + 1);
  const auto n = *rc::gen::inRange<std::size_t>(0, largest + 1);
  const auto law = *rc::gen::inRange(0, 3);
  const auto range = *rc::gen::element<std::uint64_t>(2, 12, 2000);
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t tokens = random.below(range);
    batch.tokens.push_back(tokens);
    batch.costs.push_back(law == 0 ? tokens : law == 1 ? 10 * tokens + tokens * tokens : random.below(range));
    batch.home.push_back(static_cast<std::uint32_t>(random.below(batch.ranks)));
  }
  return batch;
}

/// At least the longest sample, so that a plan exists; often tight.
std::uint64_t any_cap(const Batch& batch) {
  const std::uint64_t longest = batch.tokens.empty() ? 0 : *std::max_element(batch.tokens.begin(), batch.tokens.end());
  const std::uint64_t total = std::accumulate(batch.tokens.begin(), batch.tokens.end(), std::uint64_t{0});
  return longest + *rc::gen::element<std::uint64_t>(0, 1, longest / 3, longest, total);
}

MicrobatchPlan solve(const Batch& batch, const MicrobatchOptions& options) {
  return balance::microbatches(batch.costs, batch.tokens, batch.home, batch.ranks, options);
}

/// Fewest bins over all ways to divide the samples.
std::size_t fewest_bins(const std::vector<std::uint64_t>& tokens, std::uint64_t cap) {
  std::vector<std::uint64_t> load;
  std::size_t best = tokens.size();
  const auto search = [&](const auto& self, std::size_t i) -> void {
    if (load.size() >= best && i < tokens.size()) return;
    if (i == tokens.size()) {
      best = std::min(best, load.size());
      return;
    }
    for (std::size_t bin = 0; bin < load.size(); ++bin) {
      if (load[bin] + tokens[i] > cap) continue;
      load[bin] += tokens[i];
      self(self, i + 1);
      load[bin] -= tokens[i];
    }
    load.push_back(tokens[i]);
    self(self, i + 1);
    load.pop_back();
  };
  search(search, 0);
  return best;
}

std::vector<std::uint64_t> tokens_at(const Batch& batch, std::uint32_t rank) {
  std::vector<std::uint64_t> tokens;
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    if (batch.home[i] == rank) tokens.push_back(batch.tokens[i]);
  }
  return tokens;
}

std::size_t unavoidable_dummies(const Batch& batch, const MicrobatchPlan& plan, bool may_move) {
  const auto missing = [&](std::size_t slots, std::size_t samples) { return slots - std::min(slots, samples); };
  if (may_move) return missing(std::size_t{plan.microbatches} * batch.ranks, batch.tokens.size());
  std::size_t sum = 0;
  for (std::uint32_t rank = 0; rank < batch.ranks; ++rank) {
    sum += missing(plan.microbatches, tokens_at(batch, rank).size());
  }
  return sum;
}

}  // namespace

TEST_CASE("greedy onto loads gives the plan of its definition") {
  test::check_property("least loaded bin with room", [] {
    const auto bins = *rc::gen::inRange<std::size_t>(1, 20);
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const auto n = *rc::gen::inRange<std::size_t>(0, 60);
    std::vector<Cost> loads;
    std::vector<std::uint64_t> rooms;
    for (std::size_t bin = 0; bin < bins; ++bin) {
      loads.push_back(random.below(60));
      rooms.push_back(random.below(40));
    }
    std::vector<Cost> costs;
    std::vector<std::uint64_t> tokens;
    for (std::size_t i = 0; i < n; ++i) {
      costs.push_back(random.below(20));
      tokens.push_back(random.below(8));
    }
    std::vector<std::uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return costs[a] > costs[b]; });

    const auto defined = [&](bool capped) -> std::optional<std::vector<std::uint32_t>> {
      std::vector<Cost> load = loads;
      std::vector<std::uint64_t> room = rooms;
      std::vector<std::uint32_t> bin_of(n);
      for (const auto sample : order) {
        std::size_t best = bins;
        for (std::size_t bin = 0; bin < bins; ++bin) {
          if (capped && room[bin] < tokens[sample]) continue;
          if (best == bins || load[bin] < load[best]) best = bin;
        }
        if (best == bins) return std::nullopt;
        load[best] += costs[sample];
        if (capped) room[best] -= tokens[sample];
        bin_of[sample] = static_cast<std::uint32_t>(best);
      }
      return bin_of;
    };
    RC_ASSERT(balance::greedy_onto(costs, loads) == defined(false));
    RC_ASSERT(balance::greedy_onto(costs, tokens, order, loads, rooms) == defined(true));
  });
  CHECK_THROWS_AS((void)balance::greedy_onto({}, {}), InvalidInput);
}

TEST_CASE("the bound on bins never exceeds the fewest bins") {
  test::check_property("bins_bound against brute force", [] {
    const Batch batch = any_batch(8, 1);
    const std::uint64_t cap = any_cap(batch);
    const std::uint64_t bound = balance::bins_bound(batch.tokens, descending_order(batch.tokens), cap);
    RC_ASSERT(bound <= fewest_bins(batch.tokens, cap));
    const std::uint64_t total = std::accumulate(batch.tokens.begin(), batch.tokens.end(), std::uint64_t{0});
    if (cap > 0) RC_ASSERT(bound >= ceil_div(total, cap));
  });
  // Three samples of 6 in bins of 10, two of 4 beside them: the fourth 4 opens a fourth bin, the sum asks for four,
  // too.
  const auto bound = [](const std::vector<std::uint64_t>& tokens, std::uint64_t cap) {
    return balance::bins_bound(tokens, descending_order(tokens), cap);
  };
  CHECK(bound({6, 6, 6, 5}, 10) == 4);     // the sum asks for 3
  CHECK(bound({4, 4, 4, 4, 4}, 10) == 3);  // the sum asks for 2
  CHECK(bound({7, 7, 4, 4}, 10) == 3);     // the sum asks for 3, pairs above 5 for 2
  CHECK(bound({0, 0}, 0) == 1);
  CHECK(bound({}, 10) == 0);
}

TEST_CASE("micro-batches: every sample once, same number everywhere, cap kept, none empty that could be filled") {
  test::check_property("micro-batch invariants", [] {
    const Batch batch = any_batch(60, 6);
    MicrobatchOptions options{.token_cap = any_cap(batch)};
    options.multiple_of = *rc::gen::inRange<std::uint32_t>(1, 5);
    options.at_least = *rc::gen::inRange<std::uint32_t>(0, 5);
    options.may_move = *rc::gen::arbitrary<bool>();
    options.order = *rc::gen::element(MicrobatchOrder::longest_first, MicrobatchOrder::shortest_at_ends);
    const MicrobatchPlan plan = solve(batch, options);

    RC_ASSERT(plan.ranks == batch.ranks);
    RC_ASSERT(plan.microbatches >= 1U);
    RC_ASSERT(plan.microbatches % options.multiple_of == 0U);
    RC_ASSERT(plan.microbatches >= options.at_least);
    RC_ASSERT(plan.microbatches >= plan.microbatches_bound);
    RC_ASSERT(plan.smallest_proven == (plan.microbatches == plan.microbatches_bound));
    RC_ASSERT(plan.rank_of.size() == batch.costs.size());
    RC_ASSERT(plan.microbatch_of.size() == batch.costs.size());
    if (!options.may_move) RC_ASSERT(plan.rank_of == batch.home);

    const std::size_t slots = std::size_t{plan.microbatches} * plan.ranks;
    std::vector<Cost> cost(slots, 0);
    std::vector<std::uint64_t> tokens(slots, 0);
    std::vector<std::size_t> count(slots, 0);
    for (std::size_t i = 0; i < batch.costs.size(); ++i) {
      RC_ASSERT(plan.rank_of[i] < plan.ranks);
      RC_ASSERT(plan.microbatch_of[i] < plan.microbatches);
      const std::size_t slot = std::size_t{plan.microbatch_of[i]} * plan.ranks + plan.rank_of[i];
      cost[slot] += batch.costs[i];
      tokens[slot] += batch.tokens[i];
      ++count[slot];
    }
    RC_ASSERT(plan.cost == cost);
    RC_ASSERT(plan.tokens == tokens);
    RC_ASSERT(plan.max_tokens() <= options.token_cap);
    std::vector<MicrobatchSlot> empty;
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      if (count[slot] == 0) empty.push_back({slot / plan.ranks, slot % plan.ranks});
    }
    RC_ASSERT(plan.dummies == empty);
    RC_ASSERT(plan.dummies.size() == unavoidable_dummies(batch, plan, options.may_move));
    RC_ASSERT(plan.lower_bound <= plan.step_cost());

    std::vector<Cost> slowest;
    for (std::uint32_t k = 0; k < plan.microbatches; ++k) slowest.push_back(plan.slowest(k));
    if (options.order == MicrobatchOrder::longest_first) {
      RC_ASSERT(std::is_sorted(slowest.rbegin(), slowest.rend()));
    } else {
      const auto longest = std::max_element(slowest.begin(), slowest.end());
      RC_ASSERT(std::is_sorted(slowest.begin(), longest));
      RC_ASSERT(std::is_sorted(slowest.rbegin(), std::make_reverse_iterator(longest)));
    }
    RC_ASSERT(solve(batch, options).fingerprint() == plan.fingerprint());
  });
}

TEST_CASE("the number of micro-batches is the smallest there is, and proven so") {
  test::check_property("fewest micro-batches against brute force", [] {
    const Batch batch = any_batch(8, 3);
    MicrobatchOptions options{.token_cap = any_cap(batch)};
    options.multiple_of = *rc::gen::inRange<std::uint32_t>(1, 3);
    std::size_t needed = 1;
    for (std::uint32_t rank = 0; rank < batch.ranks; ++rank) {
      needed = std::max(needed, fewest_bins(tokens_at(batch, rank), options.token_cap));
    }
    const MicrobatchPlan fixed = solve(batch, options);
    RC_ASSERT(fixed.microbatches == ceil_div(needed, options.multiple_of) * options.multiple_of);
    RC_ASSERT(fixed.smallest_proven);

    options.may_move = true;
    const std::size_t together =
        std::max<std::size_t>(1, ceil_div(fewest_bins(batch.tokens, options.token_cap), batch.ranks));
    const MicrobatchPlan free = solve(batch, options);
    RC_ASSERT(free.microbatches == ceil_div(together, options.multiple_of) * options.multiple_of);
    RC_ASSERT(free.smallest_proven);
  });
}

TEST_CASE("where greedy packing and the bounds fall short, exhaustive search decides") {
  const auto on_one_rank = [](const std::vector<std::uint64_t>& tokens, std::uint64_t cap) {
    return balance::microbatches(tokens, tokens, std::vector<std::uint32_t>(tokens.size(), 0), 1, {.token_cap = cap});
  };
  // Fits into three exactly; first fit decreasing needs four.
  const MicrobatchPlan packed = on_one_rank({44, 24, 24, 22, 21, 17, 8, 8, 6, 6}, 60);
  CHECK(packed.microbatches == 3);
  CHECK(packed.smallest_proven);
  // 40 tokens, no sample above half of the cap, at most four above a third: all bounds say two. No sum is 20.
  const MicrobatchPlan impossible = on_one_rank({9, 9, 9, 7, 6}, 20);
  CHECK(impossible.microbatches == 3);
  CHECK(impossible.microbatches_bound == 3);
  CHECK(impossible.smallest_proven);
}

TEST_CASE("the bound on the step holds for the best plan there is") {
  test::check_property("step cost against brute force", [] {
    const Batch batch = any_batch(5, 3);
    MicrobatchOptions options{.token_cap = any_cap(batch)};
    options.may_move = *rc::gen::arbitrary<bool>();
    const MicrobatchPlan plan = solve(batch, options);
    const std::size_t n = batch.costs.size();
    const std::size_t slots = std::size_t{plan.microbatches} * plan.ranks;
    const double choices = options.may_move ? static_cast<double>(slots) : plan.microbatches;
    if (std::pow(choices, static_cast<double>(n)) > 8000) return;  // too many plans to list

    std::vector<Cost> cost(slots, 0);
    std::vector<std::uint64_t> tokens(slots, 0);
    std::vector<std::size_t> count(slots, 0);
    Cost best = std::numeric_limits<Cost>::max();
    const auto search = [&](const auto& self, std::size_t i) -> void {
      if (i == n) {
        const auto empty = static_cast<std::size_t>(std::count(count.begin(), count.end(), std::size_t{0}));
        if (empty > plan.dummies.size()) return;
        Cost sum = 0;
        for (std::size_t k = 0; k < plan.microbatches; ++k) {
          const auto first = cost.begin() + static_cast<std::ptrdiff_t>(k * plan.ranks);
          sum += *std::max_element(first, first + plan.ranks);
        }
        best = std::min(best, sum);
        return;
      }
      for (std::size_t slot = 0; slot < slots; ++slot) {
        if (!options.may_move && slot % plan.ranks != batch.home[i]) continue;
        if (tokens[slot] + batch.tokens[i] > options.token_cap) continue;
        cost[slot] += batch.costs[i];
        tokens[slot] += batch.tokens[i];
        ++count[slot];
        self(self, i + 1);
        cost[slot] -= batch.costs[i];
        tokens[slot] -= batch.tokens[i];
        --count[slot];
      }
    };
    search(search, 0);
    RC_ASSERT(plan.lower_bound <= best);
    RC_ASSERT(best <= plan.step_cost());
  });
}

TEST_CASE("more bins than the search looks at: each sample still in a bin with room") {
  test::check_property("greedy onto many bins", [] {
    // The least loaded bins are everywhere and have no room for most samples.
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    std::vector<Cost> loads(2000);
    std::vector<std::uint64_t> rooms(loads.size());
    for (std::size_t bin = 0; bin < loads.size(); ++bin) {
      const bool roomy = random.below(4) == 0 || bin == 1999;
      rooms[bin] = roomy ? 200 : 1;
      loads[bin] = roomy ? 1 + random.below(100) : 0;
    }
    std::vector<std::uint64_t> tokens(40);
    for (std::uint64_t& length : tokens) length = random.below(6);
    std::vector<std::uint32_t> order(tokens.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto bin_of = balance::greedy_onto(std::vector<Cost>(tokens.size(), 3), tokens, order, loads, rooms);
    RC_ASSERT(bin_of.has_value());  // one roomy bin takes all of them
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      RC_ASSERT(rooms[(*bin_of)[i]] >= tokens[i]);
      rooms[(*bin_of)[i]] -= tokens[i];
    }
  });
}

TEST_CASE("the same plan from every compiler and optimisation level") {
  Random random(11);
  Batch batch{.ranks = 24};
  for (std::uint32_t i = 0; i < 24 * 20; ++i) {
    const std::uint64_t tokens = 1 + random.below(1 + random.below(4000));
    batch.tokens.push_back(tokens);
    batch.costs.push_back(300 * tokens + tokens * tokens);
    batch.home.push_back(i % 24);
  }
  // Whoever changes the planner changes these values; no compiler, library or machine may.
  CHECK(hex(solve(batch, {.token_cap = 6000}).fingerprint()) == "5e98caa9177b5387");
  CHECK(hex(solve(batch, {.token_cap = 6000, .may_move = true}).fingerprint()) == "15b5aad7c3144261");
}

TEST_CASE("heavy tails: close to the bound, with ranks free and with ranks fixed") {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    for (const bool may_move : {false, true}) {
      Batch batch{.ranks = 64};
      Random random(seed);
      for (std::uint32_t i = 0; i < 64 * 32; ++i) {
        const double normal =
            std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
        const auto length = static_cast<std::uint64_t>(std::min(16384.0, 16 + std::exp(6.2 + normal)));
        batch.tokens.push_back(length);
        batch.costs.push_back(24576 * length + length * length);
        batch.home.push_back(i % 64);
      }
      CAPTURE(seed);
      CAPTURE(may_move);
      const MicrobatchPlan plan = solve(batch, {.token_cap = 16384, .may_move = may_move});
      CHECK(plan.smallest_proven);
      CHECK(plan.dummies.empty());
      CHECK(plan.gap() < 0.05);
    }
  }
}

TEST_CASE("what cannot be planned is said before anything runs") {
  const std::vector<Cost> costs{1, 1};
  const std::vector<std::uint32_t> home{0, 1};
  const auto message = [&] {
    try {
      (void)balance::microbatches(costs, std::vector<std::uint64_t>{4, 21}, home, 2, {.token_cap = 20});
    } catch (const Infeasible& error) {
      return std::string(error.what());
    }
    return std::string();
  }();
  CHECK(message.find("sample 1 ") != std::string::npos);
  CHECK(message.find("21") != std::string::npos);
  CHECK(message.find("20") != std::string::npos);

  const std::vector<std::uint64_t> tokens{1, 1};
  CHECK_THROWS_AS((void)balance::microbatches(costs, tokens, home, 0), InvalidInput);
  CHECK_THROWS_AS((void)balance::microbatches(costs, tokens, home, 1), InvalidInput);
  CHECK_THROWS_AS((void)balance::microbatches(costs, tokens, home, 2, {.multiple_of = 0}), InvalidInput);
  CHECK_THROWS_AS((void)balance::microbatches(costs, std::vector<std::uint64_t>{1}, home, 2), InvalidInput);
  CHECK_THROWS_AS((void)balance::microbatches(costs, tokens, home, 2, {.multiple_of = 4294967295U}), InvalidInput);
  CHECK_THROWS_AS(
      (void)balance::microbatches(std::vector<Cost>{~Cost{0}, 1}, tokens, std::vector<std::uint32_t>{0, 0}, 1),
      Overflow);
}

TEST_CASE("no samples: one micro-batch, a dummy on every rank") {
  for (const bool may_move : {false, true}) {
    const MicrobatchPlan plan = solve(Batch{.ranks = 3}, {.may_move = may_move});
    CHECK(plan.microbatches == 1);
    CHECK(plan.dummies.size() == 3);
    CHECK(plan.gap() == 0);
  }
}

TEST_CASE("shared cases") {
  const auto shared = test::shared_folder();
  if (!shared) return;
  int ran = 0;
  for (const auto& test_case : test::read_json(*shared / "cases" / "balance.json")) {
    if (!test_case.contains("microbatch")) continue;
    ++ran;
    const std::string name = test_case.at("name");
    CAPTURE(name);
    Batch batch{.ranks = static_cast<std::uint32_t>(test_case.at("rank_lengths").size())};
    for (std::uint32_t rank = 0; rank < batch.ranks; ++rank) {
      for (const std::uint64_t length : test_case["rank_lengths"][rank]) {
        batch.costs.push_back(length);
        batch.tokens.push_back(length);
        batch.home.push_back(rank);
      }
    }
    const auto& given = test_case["microbatch"];
    MicrobatchOptions options;
    options.token_cap = given.at("cap");
    options.multiple_of = given.value("multiple_of", options.multiple_of);
    options.may_move = given.value("may_move", options.may_move);
    const MicrobatchPlan plan = solve(batch, options);
    const auto& expect = test_case.at("expect");
    CHECK(plan.microbatches == expect.at("microbatches_per_rank").get<std::uint32_t>());
    CHECK(plan.dummies.size() == expect.value("empty", expect.value("dummies", std::size_t{0})));
    CHECK(plan.max_tokens() <= options.token_cap);

    // With ranks free, none of them needs a dummy.
    options.may_move = true;
    CHECK(solve(batch, options).dummies.empty());
  }
  CHECK(ran == 3);
}
