#include <algorithm>
#include <numeric>
#include <set>

#include "executor.hpp"
#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/orchestrate/rank_view.hpp"
#include "orchmllm/orchestrate/sampler.hpp"
#include "orchmllm/placement/placement.hpp"
#include "property.hpp"
#include "steps.hpp"

using namespace orch;
using test::any_options;
using test::any_step;
using test::balancers;
using test::plan_of;
using test::Ranks;
using test::Step;
using test::tiny_graph;
using test::tiny_lengths;

namespace {

test::Cluster run(const Route& route, std::size_t field, const test::Cluster& from) {
  return route.stages ? test::exchange(*route.stages, field, from) : test::exchange(route.exchange, field, from);
}

test::Cluster run_back(const Route& route, std::size_t field, const test::Cluster& from) {
  return route.stages ? test::exchange(inverse(*route.stages), field, from)
                      : test::exchange(inverse(route.exchange), field, from);
}

/// rank → the LLM sequence that it processes: what stands at every token, as written by an executor from its view.
std::vector<std::vector<std::uint64_t>> sequences(const StepPlan& plan, const std::vector<RankView>& views,
                                                  const std::vector<test::Cluster>& arrived) {
  std::vector<std::vector<std::uint64_t>> result(plan.ranks());
  const std::uint64_t nothing = ~std::uint64_t{0};
  for (std::uint32_t rank = 0; rank < plan.ranks(); ++rank) {
    const PhaseView& llm = views[rank].phases.back();
    std::vector<std::uint64_t>& sequence = result[rank];
    sequence.assign(std::accumulate(llm.length.begin(), llm.length.end(), std::uint64_t{0}), nothing);
    for (std::size_t r = 0; r < plan.routes.size(); ++r) {
      if (plan.routes[r].is_input() || plan.routes[r].to + 1 != plan.phases.size()) continue;
      for (const ExchangeView& stage : views[rank].routes[r].stages) {
        for (std::size_t i = 0; i < stage.sequence_position.size(); ++i) {
          const test::Elements& rows = arrived[r][rank][stage.unpack[i]];
          for (std::size_t token = 0; token < stage.unpack_length[0][i]; ++token) {
            std::uint64_t& place = sequence.at(stage.sequence_position[i] + token);
            RC_ASSERT(place == nothing);  // no two units at one place
            place = r * 1'000'000'000'000ULL + rows.at(2 * token);
          }
        }
      }
    }
    // Text fills the rest, sample after sample.
    const auto text_route = std::find_if(plan.routes.begin(), plan.routes.end(), [&](const Route& route) {
      return route.is_input() && route.to + 1 == plan.phases.size();
    });
    const test::Slots& text = arrived[static_cast<std::size_t>(text_route - plan.routes.begin())][rank];
    std::uint64_t at = 0;
    for (std::size_t slot = 0; slot < llm.length.size(); ++slot) {
      std::size_t next = 0;
      for (const std::uint64_t end = at + llm.length[slot]; at < end; ++at) {
        if (sequence[at] == nothing) sequence[at] = text[slot].at(next++);
      }
      RC_ASSERT(next == text[slot].size());
    }
  }
  return result;
}

}  // namespace

TEST_CASE(
    "step plans: every item of every phase on one rank, exchanges consistent, bounds true, never worse than home") {
  test::check_property("step plan invariants", [] {
    const Mllm model = test::plain_model();
    const Step step =
        any_step(model, test::lengths_of(model, test::any_samples(*rc::gen::inRange<std::size_t>(0, 40))));
    const StepOptions options = any_options();
    const StepPlan plan = plan_of(step, options);
    const StepPlan home = plan_of(step, balancers(Balancer::home, Balancer::home));
    RC_ASSERT(plan.phases.size() == 3U);
    for (std::size_t p = 0; p < 3; ++p) {
      const PhasePlan& phase = plan.phases[p];
      // Never slower than home. (The imbalance may rise: padding makes the mean depend on the layout.)
      RC_ASSERT(phase.assignment.max_cost() <= home.phases[p].assignment.max_cost());
      RC_ASSERT(phase.assignment.rank_of.size() == phase.length.size());
      RC_ASSERT(phase.assignment.lower_bound <= phase.assignment.max_cost());
      RC_ASSERT(phase.imbalance_before == home.phases[p].assignment.imbalance());
      for (std::uint32_t rank = 0; rank < plan.ranks(); ++rank) {
        std::uint64_t tokens = 0;
        for (const std::uint32_t item : phase.layout.items(rank)) tokens += phase.length[item];
        const bool empty = std::count(phase.empty_ranks.begin(), phase.empty_ranks.end(), rank) == 1;
        RC_ASSERT(empty == (tokens == 0));
      }
      if (p == 2 || options.encoders.granularity == Granularity::unit) continue;
      for (std::size_t i = 1; i < phase.sample_of.size(); ++i) {  // a sample's units stay together
        if (phase.sample_of[i] == phase.sample_of[i - 1]) {
          RC_ASSERT(phase.assignment.rank_of[i] == phase.assignment.rank_of[i - 1]);
        }
      }
    }
    for (const Route& route : plan.routes) verify(route.exchange);
    const auto sum = [](const std::vector<std::uint32_t>& v) {
      return std::accumulate(v.begin(), v.end(), std::uint64_t{0});
    };
    RC_ASSERT(LossCounts::total(plan.loss.samples) == step.samples.size());
    RC_ASSERT(LossCounts::total(plan.loss.tokens) == sum(step.lengths.llm_length));
    RC_ASSERT(LossCounts::total(plan.loss.supervised) == sum(step.lengths.supervised));
    RC_ASSERT(plan.hash == plan_of(step, options).hash);
  });
}

TEST_CASE(
    "a step moved by hand: raw inputs reach their phase, outputs their place in the LLM's sequence, gradients home") {
  test::check_property("reference executor", [] {
    const Mllm model = tiny_graph();
    const Step step = any_step(model, tiny_lengths(model));
    const StepPlan plan = plan_of(step, any_options());
    const std::uint32_t ranks = plan.ranks();
    std::vector<RankView> views;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) views.push_back(rank_view(plan, rank));
    verify(views);

    std::vector<test::Cluster> arrived;
    for (std::size_t r = 0; r < plan.routes.size(); ++r) {
      const Route& route = plan.routes[r];
      const PhasePlan& target = plan.phases[route.to];
      if (route.is_input()) {
        // What waits where samples were drawn: the item's elements under its own name.
        Ranks home;
        for (const std::uint32_t sample : target.sample_of) home.push_back(step.home[sample]);
        const Layout before = layout(home, ranks);
        for (std::size_t field = 0; field < route.exchange.fields(); ++field) {
          const Payload& payload = route.exchange.payload[field];
          std::vector<std::uint32_t> length(before.size());
          for (std::size_t slot = 0; slot < before.size(); ++slot) length[before.item_at[slot]] = payload.length[slot];
          const std::uint64_t each = payload.field.elements_per_length;
          const test::Cluster there = run(route, field, test::named(before, length, each));
          RC_ASSERT(there == test::named(target.layout, length, each));
          if (field == 0) arrived.push_back(there);
          // Raw inputs are whole: as many tokens as the phase processes.
          if (route.to + 1 < plan.phases.size()) RC_ASSERT(length == target.length);
          if (route.to + 1 == plan.phases.size()) RC_ASSERT(length == step.lengths.text);
        }
        continue;
      }
      const PhasePlan& source = plan.phases[route.from];
      const test::Cluster made = test::named(source.layout, source.output, 2);
      arrived.push_back(run(route, 0, made));
      RC_ASSERT(run_back(route, 0, arrived.back()) == made);  // gradients return to where the output was made
    }

    // Outputs that other encoders take lie where those process the units made from them.
    for (std::size_t to = 0; to < model.encoders.size(); ++to) {
      if (has_raw_input(model.encoders[to])) continue;
      std::vector<std::uint32_t> next = [&] {  // sample → its next unit in phase `to`
        std::vector<std::uint32_t> first(step.samples.size());
        for (std::uint32_t s = 0; s < first.size(); ++s) {
          first[s] = static_cast<std::uint32_t>(step.lengths.encoders[to].first[s]);
        }
        return first;
      }();
      for (std::size_t r = 0; r < plan.routes.size(); ++r) {
        const Route& route = plan.routes[r];
        if (route.is_input() || route.to != to) continue;
        const PhasePlan& source = plan.phases[route.from];
        std::vector<std::uint32_t> seen(ranks, 0);
        for (std::uint32_t item = 0; item < source.sample_of.size(); ++item) {
          const std::uint32_t unit = next[source.sample_of[item]]++;
          const std::uint32_t rank = plan.phases[to].assignment.rank_of[unit];
          RC_ASSERT(plan.phases[to].length[unit] == source.output[item]);
          const test::Elements& rows = arrived[r][rank].at(seen[rank]++);
          RC_ASSERT(rows.size() == 2ULL * source.output[item]);
          if (!rows.empty()) RC_ASSERT(rows[0] == item * 1000000ULL);
        }
      }
    }

    // The same from what the views say: the slot that a view names holds the unit made from the item.
    for (std::size_t r = 0; r < plan.routes.size(); ++r) {
      const Route& route = plan.routes[r];
      if (route.is_input() || route.to + 1 == plan.phases.size()) continue;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        for (const ExchangeView& stage : views[rank].routes[r].stages) {
          for (std::size_t i = 0; i < stage.target_slot.size(); ++i) {
            const test::Elements& rows = arrived[r][rank][stage.unpack[i]];
            const std::uint32_t item = static_cast<std::uint32_t>(rows.at(0) / 1'000'000);
            const PhaseView& there = views[rank].phases[route.to];
            RC_ASSERT(there.sample.at(stage.target_slot[i]) == plan.phases[route.from].sample_of[item]);
            RC_ASSERT(there.length.at(stage.target_slot[i]) == plan.phases[route.from].output[item]);
          }
        }
      }
    }

    // The LLM's sequences, built a second time from the samples alone.
    const auto sequence = sequences(plan, views, arrived);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      std::vector<std::uint64_t> expected;
      for (const std::uint32_t sample : plan.llm().layout.items(rank)) {
        std::vector<std::uint64_t> tokens(step.lengths.llm_length[sample], ~std::uint64_t{0});
        for (std::size_t r = 0; r < plan.routes.size(); ++r) {
          const Route& route = plan.routes[r];
          if (route.is_input() || route.to + 1 != plan.phases.size()) continue;
          const EncoderLengths& encoder = step.lengths.encoders[route.from];
          for (std::uint64_t unit = encoder.first[sample]; unit < encoder.first[sample + 1]; ++unit) {
            for (std::uint64_t token = 0; token < encoder.unit_llm_length[unit]; ++token) {
              tokens[encoder.unit_position[unit] + token] = r * 1'000'000'000'000ULL + unit * 1'000'000ULL + 2 * token;
            }
          }
        }
        std::uint64_t text = 0;
        for (std::uint64_t& token : tokens) {
          if (token == ~std::uint64_t{0}) token = sample * 1'000'000ULL + text++;
        }
        RC_ASSERT(text == step.lengths.text[sample]);
        expected.insert(expected.end(), tokens.begin(), tokens.end());
      }
      RC_ASSERT(sequence[rank] == expected);
    }
  });
}

TEST_CASE("without balancing nothing moves; with the LLM alone encoders stay home") {
  test::check_property("strategies", [] {
    const Mllm model = test::plain_model();
    const Step step =
        any_step(model, test::lengths_of(model, test::any_samples(*rc::gen::inRange<std::size_t>(0, 30))));
    const StepPlan none = plan_of(step, balancers(Balancer::home, Balancer::home));
    for (const Route& route : none.routes) {
      RC_ASSERT(route.exchange.identity);
      RC_ASSERT(traffic(route, step.topology).moved_bytes() == 0U);
    }
    const StepPlan llm_only = plan_of(step, balancers(Balancer::home, Balancer::lpt));
    for (const PhasePlan& phase : llm_only.encoders()) {
      for (std::size_t i = 0; i < phase.sample_of.size(); ++i) {
        RC_ASSERT(phase.assignment.rank_of[i] == step.home[phase.sample_of[i]]);
      }
    }
  });
}

TEST_CASE("phases can have costs, balancers and granularities of their own") {
  const Mllm model = test::plain_model();
  // One sample of four images on rank 0 of two: only unit by unit can both ranks share them.
  const PhaseLengths lengths = test::lengths_of(
      model, {test::counted(10, {{100, 1}, {100, 1}, {100, 1}, {100, 1}}, {{100, 1}, {100, 1}}), test::counted(10)});
  const Step step{model, lengths, uniform_topology(2, 2), {0, 1}, {0, 1}};
  const auto busiest = [&](const StepOptions& options, std::size_t phase) {
    return plan_of(step, options).phases[phase].assignment.max_cost();
  };
  StepOptions options;
  const Cost together = busiest(options, 0);
  options.phases["vision"] = {.granularity = Granularity::unit};
  CHECK(busiest(options, 0) * 2 == together);
  CHECK(plan_of(step, options).phases[1].assignment.rank_of == Ranks{0, 0});  // audio is balanced by sample still
  options.phases["vision"].cost = PaddedCost{.alpha = 3, .beta = 0};
  CHECK(busiest(options, 0) == 2 * 3 * 100);
  options.phases["vision"].granularity = Granularity::sample;
  CHECK_THROWS_WITH_AS((void)plan_of(step, options), doctest::Contains("granularity of units"), InvalidInput);
  options.phases = {{"smell", {}}};
  CHECK_THROWS_WITH_AS((void)plan_of(step, options), doctest::Contains("smell"), InvalidInput);
}

TEST_CASE("units without tokens cost where padding is charged, and do not spoil the balance") {
  const Mllm model = test::plain_model();
  std::vector<CountedUnit> many(50, {0, 1});
  const PhaseLengths lengths =
      test::lengths_of(model, {test::counted(1, many), test::counted(1, {{100, 25}, {100, 25}})});
  const Step step{model, lengths, uniform_topology(3, 3), {0, 1}, {0, 1}};
  StepOptions options;
  options.phases["vision"] = {.granularity = Granularity::unit, .cost = PaddedCost{.alpha = 1, .beta = 0}};
  CHECK(plan_of(step, options).phases[0].assignment.max_cost() <= 200);
}

TEST_CASE("what does not fit together is refused before anything is read") {
  const Mllm model = test::plain_model();
  const PhaseLengths lengths = test::lengths_of(model, {test::counted(1), test::counted(2)});
  const Topology nodes = uniform_topology(2, 2);
  CHECK_THROWS_WITH_AS((void)plan_step(model, lengths, {0, 1}, {0, 7}, nodes), doctest::Contains("rank 7"),
                       InvalidInput);
  CHECK_THROWS_WITH_AS((void)plan_step(model, lengths, {0, 900}, {0, 1}, nodes), doctest::Contains("sample 900"),
                       InvalidInput);
  CHECK_THROWS_AS((void)plan_step(model, lengths, {0}, {0, 1}, nodes), InvalidInput);
  CHECK_THROWS_AS((void)plan_step(model, lengths, {0}, {0}, nodes, {.schedule = ExchangeSchedule::automatic}),
                  InvalidInput);
  CHECK(plan_step(model, PhaseLengths{}, {}, {}, nodes).phases.size() == 3);
}

TEST_CASE("jointly chosen, the LLM's layout keeps outputs where they are") {
  // Rank 0 drew three images; two must leave it. Their samples' LLM work follows them.
  const Mllm model = test::plain_model();
  const PhaseLengths lengths =
      test::lengths_of(model, {test::counted(10, {{2000, 500}}), test::counted(10, {{2000, 500}}),
                               test::counted(10, {{2000, 500}}), test::counted(10)});
  const Step step{model, lengths, uniform_topology(3, 1), {0, 1, 2, 3}, {0, 0, 0, 1}};
  StepOptions options = balancers(Balancer::movement, Balancer::movement);
  const auto outputs = [&](bool joint) {
    options.joint = joint;
    std::uint64_t bytes = 0;
    const StepPlan plan = plan_of(step, options);
    for (const Route& route : plan.routes) {
      if (!route.is_input()) bytes += traffic(route, step.topology).inter_node_bytes;
    }
    return bytes;
  };
  CHECK(outputs(true) == 0);
  CHECK(outputs(true) <= outputs(false));
}

TEST_CASE("a cost that does not fit into 64 bits is reported with phase and sample") {
  const Mllm model = test::plain_model();
  const PhaseLengths lengths = test::lengths_of(model, {test::counted(5), test::counted(1U << 20U), test::counted(7)});
  const Step step{model, lengths, uniform_topology(2, 2), {2, 1}, {0, 1}};
  for (const Balancer balancer : {Balancer::home, Balancer::lpt, Balancer::movement}) {
    StepOptions options = balancers(balancer, balancer);
    options.llm.cost = ConvPackedCost{0, {.alpha = 0, .beta = Cost{1} << 30U}};
    CHECK_THROWS_WITH_AS((void)plan_of(step, options), doctest::Contains("phase llm: sample 1: cost overflow"),
                         Overflow);
    options.llm.cost = PaddedCost{.alpha = Cost{1} << 50U, .beta = 0};
    CHECK_THROWS_WITH_AS((void)plan_of(step, options), doctest::Contains("phase llm: sample 1: cost overflow"),
                         Overflow);
  }
}

TEST_CASE("one rank's view is small and names inconsistent peers before anything moves") {
  const Mllm model = test::plain_model();
  std::vector<Sample> samples;
  for (std::uint32_t i = 0; i < 32; ++i) samples.push_back(test::counted(100 + 7 * i, {{512 * (i % 3), std::nullopt}}));
  Step step{model, test::lengths_of(model, samples), uniform_topology(4, 2), Ranks(32), home_ranks(4, 8)};
  std::iota(step.samples.begin(), step.samples.end(), 0U);
  const StepPlan plan = plan_of(step);
  std::vector<RankView> views;
  for (std::uint32_t rank = 0; rank < 4; ++rank) views.push_back(rank_view(plan, rank));
  CHECK_NOTHROW(verify(views));
  CHECK(views[0].phases[1].dummy);  // no audio at all
  CHECK_FALSE(views[0].phases[2].dummy);
  CHECK(views[0].loss.all_samples == 32);
  CHECK_THROWS_AS((void)rank_view(plan, 4), InvalidInput);

  const auto refused = [&](const char* what, auto&& damage) {
    std::vector<RankView> bad = views;
    damage(bad);
    CHECK_THROWS_WITH_AS(verify(bad), doctest::Contains(what), InvalidInput);
  };
  refused("rank 2 has plan", [](auto& v) { v[2].plan_hash ^= 1U; });
  refused("calls itself 3 of 4", [](auto& v) { std::swap(v[2], v[3]); });
  auto& outputs = views[1].routes[3].stages[0];
  REQUIRE(outputs.sends.size() > 1);
  const std::string pair = "vision -> llm, ranks 1 -> " + std::to_string(outputs.sends[0].rank);
  refused(pair.c_str(), [](auto& v) { v[1].routes[3].stages[0].sends[0].elements[0] += 1; });
  refused(pair.c_str(), [](auto& v) { v[1].routes[3].stages[0].sends.erase(v[1].routes[3].stages[0].sends.begin()); });
}

TEST_CASE("the same input gives the same plan, another input another fingerprint") {
  const Mllm model = test::plain_model();
  std::vector<Sample> samples;
  for (std::uint32_t i = 0; i < 24; ++i) samples.push_back(test::counted(100 + 7 * i, {{512 * (i % 3), std::nullopt}}));
  const PhaseLengths lengths = test::lengths_of(model, samples);
  Sampler sampler(lengths.samples(), 3);
  const auto batch = sampler.next(16);
  const auto plan = [&](const std::vector<std::uint32_t>& drawn, const StepOptions& options = {}) {
    return plan_step(model, lengths, drawn, home_ranks(4, 4), uniform_topology(4, 2), options).hash;
  };
  CHECK(plan(batch) == plan(batch));
  CHECK(plan(batch) != plan(sampler.next(16)));
  CHECK(plan(batch) != plan(batch, {.schedule = ExchangeSchedule::hierarchical}));
  // Part of the plan format: the same on every compiler and optimisation level.
  CHECK(hex(plan(batch)) == "a82dbdec01518247");
}

TEST_CASE("the sampler visits every sample once an epoch") {
  Sampler sampler(10, 1);
  const auto first = sampler.next(10);
  CHECK(std::set(first.begin(), first.end()).size() == 10);
  const auto more = sampler.next(25);
  CHECK(std::set(more.begin(), more.begin() + 10).size() == 10);
  CHECK(std::vector(more.begin(), more.begin() + 10) != first);
  CHECK_THROWS_AS(Sampler(0, 1), InvalidInput);
}
