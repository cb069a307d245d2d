#include <algorithm>
#include <numeric>
#include <set>

#include "models.hpp"
#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/orchestrate/sampler.hpp"
#include "property.hpp"

using namespace orch;

namespace {

StepPlan any_plan(const Mllm& model, const PhaseLengths& lengths, const StepOptions& options, std::uint32_t ranks) {
  std::vector<std::uint32_t> samples(lengths.samples());
  std::iota(samples.begin(), samples.end(), 0U);
  const auto home =
      *rc::gen::container<std::vector<std::uint32_t>>(samples.size(), rc::gen::inRange<std::uint32_t>(0, ranks));
  return plan_step(model, lengths, samples, home, ranks, options);
}

/// Every balancer, with and without placement, on nodes of one to four ranks.
StepOptions any_options() {
  StepOptions options;
  options.encoders = *rc::gen::element(Balancer::lpt, Balancer::movement, Balancer::home);
  options.llm = *rc::gen::element(Balancer::lpt, Balancer::movement);
  if (*rc::gen::arbitrary<bool>()) {
    options.placement = *rc::gen::element(PlacementObjective::total, PlacementObjective::bottleneck);
  }
  options.ranks_per_node = *rc::gen::inRange<std::uint32_t>(1, 5);
  return options;
}

}  // namespace

TEST_CASE(
    "step plans: every sample of every phase on one rank, exchanges consistent, bounds true, never worse than home") {
  test::check_property("step plan invariants", [] {
    const Mllm model = test::plain_model();
    const PhaseLengths lengths = test::lengths_of(model, test::any_samples(*rc::gen::inRange<std::size_t>(0, 40)));
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 9);
    const StepPlan plan = any_plan(model, lengths, any_options(), ranks);
    const StepPlan home = plan_step(model, lengths, plan.samples, plan.home_rank, ranks,
                                    {.encoders = Balancer::home, .llm = Balancer::home});
    RC_ASSERT(plan.phases.size() == 3U);
    for (std::size_t p = 0; p < 3; ++p) {
      const PhasePlan& phase = plan.phases[p];
      // Never slower than home. (The imbalance may rise: padding makes the mean depend on the layout.)
      RC_ASSERT(phase.assignment.max_cost() <= home.phases[p].assignment.max_cost());
      RC_ASSERT(phase.assignment.rank_of.size() == lengths.samples());
      RC_ASSERT(phase.assignment.lower_bound <= phase.assignment.max_cost());
      RC_ASSERT(phase.imbalance_before == home.phases[p].assignment.imbalance());
      verify(phase.input);
      RC_ASSERT(compose(inverse(phase.from_home), phase.from_home).is_identity());
      if (phase.output) {
        verify(*phase.output);
        verify(inverse(*phase.output));
      }
    }
    for (std::size_t e = 0; e < 2; ++e) {
      std::uint64_t inputs = 0;
      std::uint64_t outputs = 0;
      for (std::size_t i = 0; i < lengths.samples(); ++i) {
        inputs += lengths.encoders[e].tokens(i);
        outputs += lengths.encoders[e].llm_length[i];
        // Samples without this modality have nothing to gain elsewhere.
        if (lengths.encoders[e].units(i).empty()) RC_ASSERT(plan.phases[e].assignment.rank_of[i] == plan.home_rank[i]);
      }
      const auto sum = [](const std::vector<std::uint64_t>& v) {
        return std::accumulate(v.begin(), v.end(), std::uint64_t{0});
      };
      RC_ASSERT(sum(plan.phases[e].input.send_elements) == inputs);
      RC_ASSERT(sum(plan.phases[e].output->send_elements) == outputs);
      RC_ASSERT(sum(plan.phases[e].output->receive_elements) == outputs);
    }
  });
}

TEST_CASE("without balancing nothing moves; with the LLM alone encoders stay home") {
  test::check_property("strategies", [] {
    const Mllm model = test::plain_model();
    const PhaseLengths lengths = test::lengths_of(model, test::any_samples(*rc::gen::inRange<std::size_t>(0, 30)));
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 7);
    const StepPlan none = any_plan(model, lengths, {.encoders = Balancer::home, .llm = Balancer::home}, ranks);
    for (const PhasePlan& phase : none.phases) {
      RC_ASSERT(phase.from_home.is_identity());
      RC_ASSERT(traffic(phase.input, 2).moved_bytes() == 0U);
      if (phase.output) RC_ASSERT(traffic(*phase.output, 2).moved_bytes() == 0U);
    }
    const StepPlan llm_only = any_plan(model, lengths, {.encoders = Balancer::home, .llm = Balancer::lpt}, ranks);
    for (const PhasePlan& phase : llm_only.encoders()) RC_ASSERT(phase.from_home.is_identity());
  });
}

TEST_CASE("the same input gives the same plan, another input another fingerprint") {
  const Mllm model = test::plain_model();
  std::vector<Sample> samples;
  for (std::uint32_t i = 0; i < 24; ++i) samples.push_back(test::counted(100 + 7 * i, {{512 * (i % 3), std::nullopt}}));
  const PhaseLengths lengths = test::lengths_of(model, samples);
  Sampler sampler(lengths.samples(), 3);
  const auto batch = sampler.next(16);
  const StepPlan plan = plan_step(model, lengths, batch, home_ranks(4, 4), 4);
  CHECK(plan.fingerprint() == plan_step(model, lengths, batch, home_ranks(4, 4), 4).fingerprint());
  CHECK(plan.fingerprint() != plan_step(model, lengths, sampler.next(16), home_ranks(4, 4), 4).fingerprint());
  // Part of the plan format: the same on every compiler and optimisation level.
  CHECK(hex(plan.fingerprint()) == "64770ecfbcb9f6c7");
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
