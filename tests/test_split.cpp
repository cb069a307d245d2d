#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "orchmllm/balance/split.hpp"
#include "orchmllm/base/random.hpp"
#include "property.hpp"

using namespace orch;

namespace {

std::vector<std::uint64_t> log_normal(std::size_t n, double sigma, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint64_t> lengths(n);
  for (std::uint64_t& length : lengths) {
    const double normal =
        std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307179586 * random.uniform());
    length = static_cast<std::uint64_t>(1 + std::exp(6.2 + sigma * normal));
  }
  return lengths;
}

/// Smallest largest rank cost over all plans: every sample whole on a rank or split over an aligned group of a node.
Cost best_split(const std::vector<std::uint64_t>& lengths, std::uint32_t ranks, const PackedCost& cost,
                const SplitOptions& options) {
  std::vector<Cost> loads(ranks, 0);
  Cost best = std::numeric_limits<Cost>::max();
  const auto search = [&](const auto& self, std::size_t i) -> void {
    const Cost so_far = *std::max_element(loads.begin(), loads.end());
    if (so_far >= best) return;
    if (i == lengths.size()) {
      best = so_far;
      return;
    }
    for (std::uint32_t group = 1; group <= std::min(ranks, options.ranks_per_node); group *= 2) {
      const Cost member =
          group == 1 ? cost(lengths[i])
                     : balance::chunks_cost(
                           balance::zigzag_chunks(
                               balance::padded_split_length(lengths[i], group, options.tensor_parallel), group, 0),
                           cost);
      for (std::uint32_t first = 0; first + group <= ranks; ++first) {
        const std::uint32_t inside = first % options.ranks_per_node;
        if (inside % group != 0 || inside + group > options.ranks_per_node) continue;
        for (std::uint32_t rank = first; rank < first + group; ++rank) loads[rank] += member;
        self(self, i + 1);
        for (std::uint32_t rank = first; rank < first + group; ++rank) loads[rank] -= member;
      }
    }
  };
  search(search, 0);
  return best;
}

PackedCost any_cost() {
  return {.gamma = *rc::gen::inRange<Cost>(0, 50),
          .alpha = *rc::gen::inRange<Cost>(0, 20),
          .beta = *rc::gen::inRange<Cost>(0, 3)};
}

}  // namespace

TEST_CASE("zig-zag chunks tile the padded sample and cost every member the same") {
  test::check_property("zig-zag", [] {
    const auto group = *rc::gen::element(2U, 4U, 8U, 16U);
    const auto tensor_parallel = *rc::gen::element(1U, 2U, 3U, 8U);
    const auto length = *rc::gen::inRange<std::uint64_t>(0, 100000);
    const PackedCost cost = any_cost();
    const std::uint64_t padded = balance::padded_split_length(length, group, tensor_parallel);
    RC_ASSERT(padded >= length);
    RC_ASSERT(padded - length < std::uint64_t{2} * group * tensor_parallel);
    RC_ASSERT(padded % (std::uint64_t{2} * group * tensor_parallel) == 0U);

    std::vector<TokenRange> ranges;
    Cost sum = 0;
    for (std::uint32_t member = 0; member < group; ++member) {
      const auto chunks = balance::zigzag_chunks(padded, group, member);
      ranges.insert(ranges.end(), chunks.begin(), chunks.end());
      // Causal attention token by token: token t attends to t + 1 tokens.
      std::uint64_t attended = 0;
      for (const TokenRange& chunk : chunks) {
        RC_ASSERT(chunk.size() == padded / (std::uint64_t{2} * group));
        for (std::uint64_t t = chunk.begin; t < chunk.end; ++t) attended += t + 1;
      }
      RC_ASSERT(attended * group == padded * (padded + 1) / 2);
      RC_ASSERT(balance::chunks_cost(chunks, cost) ==
                balance::chunks_cost(balance::zigzag_chunks(padded, group, 0), cost));
      sum += balance::chunks_cost(chunks, cost) - cost.gamma;
    }
    RC_ASSERT(sum + cost.gamma == cost(padded));
    std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    std::uint64_t next = 0;
    for (const TokenRange& range : ranges) {
      RC_ASSERT(range.begin == next);
      next = range.end;
    }
    RC_ASSERT(next == padded);
  });
}

TEST_CASE("splits: every sample once, groups aligned inside a node, true costs, true bounds") {
  test::check_property("split invariants", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 40);
    const auto n = *rc::gen::inRange<std::size_t>(0, 120);
    const PackedCost cost = any_cost();
    SplitOptions options;
    options.ranks_per_node = *rc::gen::element(1U, 2U, 6U, 8U, 16U);
    options.tensor_parallel = *rc::gen::element(1U, 2U, 8U);
    options.largest_group = *rc::gen::element(0U, 1U, 4U);
    options.threshold_percent = *rc::gen::element(25U, 100U, 200U);
    const auto lengths = log_normal(n, *rc::gen::element(0.0, 1.0, 2.0), *rc::gen::arbitrary<std::uint64_t>());
    const SplitPlan plan = balance::split(lengths, ranks, cost, options);

    RC_ASSERT(plan.ranks == ranks);
    RC_ASSERT(plan.rank_of.size() == n);
    RC_ASSERT(plan.rank_cost.size() == ranks);
    std::set<std::uint32_t> split;
    std::vector<Cost> loads(ranks, 0);
    for (const SplitSample& part : plan.splits) {
      RC_ASSERT(part.sample < n);
      RC_ASSERT(split.insert(part.sample).second);
      RC_ASSERT(plan.rank_of[part.sample] == SplitPlan::is_split);
      RC_ASSERT(part.group >= 2U);
      RC_ASSERT((part.group & (part.group - 1)) == 0U);
      if (options.largest_group != 0) RC_ASSERT(part.group <= options.largest_group);
      const std::uint32_t inside = part.first_rank % options.ranks_per_node;
      RC_ASSERT(inside % part.group == 0U);
      RC_ASSERT(inside + part.group <= options.ranks_per_node);
      RC_ASSERT(part.first_rank + part.group <= ranks);
      RC_ASSERT(part.padded_length == lengths[part.sample] + part.pad);
      RC_ASSERT(part.padded_length ==
                balance::padded_split_length(lengths[part.sample], part.group, options.tensor_parallel));
      RC_ASSERT(part.chunks.size() == part.group);
      RC_ASSERT(part.member_cost < cost(lengths[part.sample]));
      for (std::uint32_t member = 0; member < part.group; ++member) {
        RC_ASSERT(part.chunks[member] == balance::zigzag_chunks(part.padded_length, part.group, member));
        RC_ASSERT(balance::chunks_cost(part.chunks[member], cost) == part.member_cost);
        loads[part.first_rank + member] += part.member_cost;
      }
    }
    for (std::uint32_t sample = 0; sample < n; ++sample) {
      if (plan.rank_of[sample] == SplitPlan::is_split) {
        RC_ASSERT(split.count(sample) == 1U);
      } else {
        RC_ASSERT(plan.rank_of[sample] < ranks);
        loads[plan.rank_of[sample]] += cost(lengths[sample]);
      }
    }
    RC_ASSERT(plan.rank_cost == loads);
    RC_ASSERT(plan.lower_bound <= plan.max_cost());
    RC_ASSERT(plan.lower_bound <= plan.whole_lower_bound);
    RC_ASSERT(balance::split(lengths, ranks, cost, options).fingerprint() == plan.fingerprint());
  });
}

TEST_CASE("the bound holds for the best plan there is") {
  test::check_property("split against brute force", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 5);
    const auto n = *rc::gen::inRange<std::size_t>(0, 5);
    SplitOptions options;
    options.ranks_per_node = *rc::gen::element(1U, 2U, 3U, 4U);
    options.tensor_parallel = *rc::gen::element(1U, 2U);
    PackedCost cost = any_cost();
    const auto lengths = *rc::gen::container<std::vector<std::uint64_t>>(
        n, rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(0, 30), rc::gen::inRange<std::uint64_t>(0, 3000)));
    const SplitPlan plan = balance::split(lengths, ranks, cost, options);
    const Cost best = best_split(lengths, ranks, cost, options);
    RC_ASSERT(plan.lower_bound <= best);
    RC_ASSERT(best <= plan.max_cost());
  });
}

TEST_CASE("a sample above the mean is split until it fits under it") {
  // 4 ranks, one sample of 1000² = 1,000,000 and ten of 100² = 10,000: the mean is 275,000.
  std::vector<std::uint64_t> lengths(11, 100);
  lengths[3] = 1000;
  const SplitPlan plan = balance::split(lengths, 4, {.alpha = 0, .beta = 1}, {.ranks_per_node = 4});
  REQUIRE(plan.splits.size() == 1);
  CHECK(plan.splits[0].sample == 3);
  CHECK(plan.splits[0].group == 4);
  CHECK(plan.splits[0].padded_length == 1000);
  CHECK(plan.splits[0].member_cost == 250'000);
  CHECK(plan.whole_lower_bound == 1'000'000);
  CHECK(plan.lower_bound == 275'000);
  CHECK(plan.max_cost() == 280'000);
}

TEST_CASE("the same plan from every compiler and optimisation level") {
  Random random(11);
  std::vector<std::uint64_t> lengths(640);
  for (std::uint64_t& length : lengths) length = 1 + random.below(1 + random.below(1 + random.below(40000)));
  // Whoever changes the planner changes this value; no compiler, library or machine may.
  const SplitPlan plan = balance::split(lengths, 64, {.alpha = 10, .beta = 1});
  CHECK(plan.splits.size() > 4);
  CHECK(hex(plan.fingerprint()) == "c1f455fc07a52f02");
}

TEST_CASE("heavy tails: the mean is what counts after splitting") {
  const PackedCost cost{.alpha = 24576, .beta = 1};
  for (const std::uint32_t ranks : {320U, 2560U}) {
    for (const std::uint64_t seed : {1U, 2U}) {
      CAPTURE(ranks);
      CAPTURE(seed);
      const auto lengths = log_normal(std::size_t{ranks} * 32, 1.0, seed);
      const SplitPlan plan = balance::split(lengths, ranks, cost);
      CHECK(static_cast<double>(plan.whole_lower_bound) > 1.2 * plan.mean_cost());
      CHECK(plan.imbalance() < 1.005);
      CHECK(plan.gap() < 0.005);
    }
  }
}

TEST_CASE("a sample that a whole node cannot bring under the mean stays, and the gap says what remains") {
  std::vector<std::uint64_t> lengths(31, 10);
  lengths.push_back(100'000);
  const SplitPlan plan = balance::split(lengths, 32, {.alpha = 0, .beta = 1}, {.ranks_per_node = 8});
  REQUIRE(plan.splits.size() == 1);
  CHECK(plan.splits[0].group == 8);
  CHECK(plan.lower_bound == plan.splits[0].member_cost);
  CHECK(plan.gap() == 0);
  CHECK(plan.imbalance() > 3.9);
}

TEST_CASE("empty, zero and impossible inputs") {
  CHECK(balance::split({}, 4, {}).max_cost() == 0);
  CHECK(balance::split(std::vector<std::uint64_t>(9, 0), 4, {}).gap() == 0);
  CHECK_THROWS_AS((void)balance::split({}, 0, {}), InvalidInput);
  CHECK_THROWS_AS((void)balance::split({}, 1, {}, {.ranks_per_node = 0}), InvalidInput);
  CHECK_THROWS_AS((void)balance::split({}, 1, {}, {.tensor_parallel = 0}), InvalidInput);
  CHECK_THROWS_AS((void)balance::split({}, 1, {}, {.threshold_percent = 0}), InvalidInput);
  CHECK_THROWS_AS((void)balance::split({}, 1, {.attention_span = 5}), InvalidInput);
  const std::vector<std::uint64_t> huge{1ULL << 33U};
  CHECK_THROWS_AS((void)balance::split(huge, 8, {.alpha = 0, .beta = 1}), Overflow);
}
