#include <fstream>

#include "instances.hpp"
#include "orchmllm/io/plan.hpp"
#include "property.hpp"
#include "steps.hpp"

using namespace orch;
using io::Json;

namespace {

/// Four ranks, 32 samples with images, node-first exchanges.
StepPlan some_plan() {
  const Mllm model = test::plain_model();
  std::vector<Sample> samples;
  for (std::uint32_t i = 0; i < 32; ++i) {
    samples.push_back(test::counted(100 + 7 * i, {{512 * (i % 3), std::nullopt}}, {{100 * (i % 2), std::nullopt}}));
  }
  test::Step step{model, test::lengths_of(model, samples), uniform_topology(4, 2), test::Ranks(32), home_ranks(4, 8)};
  std::iota(step.samples.begin(), step.samples.end(), 0U);
  return test::plan_of(step, {.schedule = ExchangeSchedule::hierarchical});
}

void require_same(const StepPlan& a, const StepPlan& b) {
  RC_ASSERT(a.hash == b.hash);
  RC_ASSERT(a.phases.size() == b.phases.size());
  RC_ASSERT(a.routes.size() == b.routes.size());
  for (std::size_t p = 0; p < a.phases.size(); ++p) {
    RC_ASSERT(a.phases[p].layout == b.phases[p].layout);
    RC_ASSERT(a.phases[p].assignment.rank_cost == b.phases[p].assignment.rank_cost);
    RC_ASSERT(a.phases[p].assignment.lower_bound == b.phases[p].assignment.lower_bound);
    RC_ASSERT(a.phases[p].assignment.solver == b.phases[p].assignment.solver);
    RC_ASSERT(a.phases[p].empty_ranks == b.phases[p].empty_ranks);
    RC_ASSERT(a.phases[p].nonempty == b.phases[p].nonempty);
  }
  for (std::size_t r = 0; r < a.routes.size(); ++r) {
    RC_ASSERT(a.routes[r].exchange == b.routes[r].exchange);
    RC_ASSERT(a.routes[r].stages.has_value() == b.routes[r].stages.has_value());
    if (a.routes[r].stages) RC_ASSERT(a.routes[r].stages->between == b.routes[r].stages->between);
  }
}

}  // namespace

TEST_CASE("plans survive JSON and CBOR") {
  test::check_property("plan round trip", [] {
    const Mllm model = test::tiny_graph();
    const StepPlan plan = test::plan_of(test::any_step(model, test::tiny_lengths(model)), test::any_options());
    const Json json = io::to_json(plan);
    require_same(plan, io::step_plan_from_json(io::parse_document(json.dump())));
    const std::vector<std::uint8_t> cbor = io::to_cbor(json);
    const std::string bytes(cbor.begin(), cbor.end());
    require_same(plan, io::step_plan_from_json(io::parse_document(bytes)));
    RC_ASSERT(bytes.size() < json.dump().size());
  });
}

TEST_CASE("a cut document is refused wherever it is cut") {
  const Json json = io::to_json(some_plan());
  const std::string text = json.dump();
  const std::vector<std::uint8_t> cbor = io::to_cbor(json);
  const std::string bytes(cbor.begin(), cbor.end());
  for (const std::string& document : {text, bytes}) {
    for (std::size_t cut = 0; cut < document.size(); cut += 1 + cut / 16) {
      CHECK_THROWS_AS((void)io::parse_document(document.substr(0, cut)), InvalidInput);
    }
    CHECK_NOTHROW((void)io::step_plan_from_json(io::parse_document(document)));
  }
}

TEST_CASE("what is wrong in a plan is named by its place") {
  const Json good = io::to_json(some_plan());
  struct Damage {
    const char* place;
    Json value;
    const char* message;
  };
  const std::vector<Damage> damages{
      {"/schema", "orchmllm.step_plan/0", "plan/schema"},
      {"/plan_hash", "0000000000000000", "plan/plan_hash"},
      {"/node_sizes", Json::array(), "plan/node_sizes: expected 1 to"},
      {"/node_sizes/1", 0, "node 1 has no ranks"},
      {"/node_sizes/0", 4000000000U, "plan/node_sizes/0: 4000000000 is too large"},
      {"/samples/3", -1, "plan/samples/3: expected a whole number"},
      {"/samples/3", 1.5, "plan/samples/3: expected a whole number"},
      {"/home_rank", {0}, "plan/home_rank: 1 entries, expected 32"},
      {"/home_rank/5", 4, "plan/home_rank/5: 4 is too large, at most 3"},
      {"/phases", Json::array(), "plan/phases: is empty"},
      {"/phases/0/phase", 3, "plan/phases/0/phase: expected a string"},
      {"/phases/0/sample_of/0", 9, "plan/phases/0/sample_of: must ascend"},
      {"/phases/0/rank_of/0", 7, "plan/phases/0/rank_of/0: 7 is too large"},
      {"/phases/0/length/0", "x", "plan/phases/0/length/0: expected a whole number"},
      {"/phases/1/imbalance_before", nullptr, "plan/phases/1/imbalance_before: expected a number"},
      {"/routes/0/from", "smell", "plan/routes/0/from: \"smell\" is no phase"},
      {"/routes/0/schedule", "fast", "plan/routes/0/schedule: \"fast\", expected direct or hierarchical"},
      {"/routes/3/rank_before/0", 3, "plan/routes/3/rank_before: differs"},
      {"/routes/3/fields/0/length", {1, 2}, "plan/routes/3/fields/0/length: 2 entries, expected 32"},
      {"/routes/3/fields/0/element_bytes", 3, "plan/plan_hash"},
      {"/loss/tokens", {1}, "plan/loss/tokens: 1 entries, expected 4"},
      {"/loss", 7, "plan/loss: expected an object"},
  };
  for (const Damage& damage : damages) {
    Json bad = good;
    bad[Json::json_pointer(damage.place)] = damage.value;
    const std::string place = damage.place;
    CAPTURE(place);
    CHECK_THROWS_WITH_AS((void)io::step_plan_from_json(bad), doctest::Contains(damage.message), InvalidInput);
  }
  for (const auto& item : good.items()) {
    Json bad = good;
    bad.erase(item.key());
    CHECK_THROWS_WITH_AS((void)io::step_plan_from_json(bad), doctest::Contains(item.key().c_str()), InvalidInput);
  }
}

TEST_CASE("hostile documents are refused") {
  for (const std::string text : {"", " ", "{", "[1]", "nul", "\xff\xff\xff"}) {
    CHECK_THROWS_AS((void)io::step_plan_from_json(io::parse_document(text)), InvalidInput);
  }
  CHECK_THROWS_WITH_AS((void)io::parse_document("{\"a\":" + std::string(1'000'000, '[')),
                       doctest::Contains("nested too deeply"), InvalidInput);
  CHECK_THROWS_WITH_AS((void)io::parse_document(std::string(1'000'000, '\x81')), doctest::Contains("nested too deeply"),
                       InvalidInput);
  CHECK_THROWS_AS((void)io::parse_document("\x9b\x7f\xff\xff\xff\xff\xff\xff\xff"), InvalidInput);
}

TEST_CASE("a rank's view as a document") {
  const StepPlan plan = some_plan();
  const Json view = io::to_json(rank_view(plan, 1));
  CHECK(view["plan_hash"] == hex(plan.hash));
  CHECK(view["rank"] == 1);
  CHECK(view["phases"].size() == 3);
  CHECK(view["routes"].size() == plan.routes.size());
  CHECK(view["routes"][3]["stages"].size() == 4);
  CHECK(view["loss"]["all_samples"] == 32);
}
