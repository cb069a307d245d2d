// The executor on ranks that are threads: every element of every route arrives, and a wrong one is named.
#include <doctest/doctest.h>

#include <atomic>
#include <optional>

#include "corrupting.hpp"
#include "orchmllm/runtime/agreement.hpp"
#include "orchmllm/runtime/compute.hpp"
#include "orchmllm/runtime/executor.hpp"
#include "property.hpp"
#include "steps.hpp"
#include "thread_transport.hpp"

using namespace orch;
using namespace orch::runtime;
using test::any_options;
using test::any_step;
using test::balancers;
using test::Corrupting;
using test::plan_of;
using test::small_step;
using test::Step;
using test::ThreadHub;
using test::ThreadTransport;

namespace {

/// Bytes that a step must check: all that is made, once there and once back for outputs.
std::uint64_t expected_bytes(const StepPlan& plan) {
  std::uint64_t bytes = 0;
  for (const Route& route : plan.routes) {
    for (const Payload& payload : route.exchange.payload) {
      for (const std::uint32_t length : payload.length) {
        bytes += (route.is_input() ? 1 : 2) * length * payload.field.bytes_per_length();
      }
    }
  }
  return bytes;
}

/// What must travel between ranks: directly there, for outputs also back.
std::uint64_t moved_bytes(const StepPlan& plan) {
  std::uint64_t bytes = 0;
  for (const Route& route : plan.routes) {
    bytes += (route.is_input() ? 1 : 2) * traffic(route, plan.topology).moved_bytes();
  }
  return bytes;
}

std::vector<StepReport> execute(ThreadHub& hub, const std::vector<StepPlan>& plans, const ExecutorOptions& options) {
  std::vector<StepReport> reports(hub.ranks);
  test::on_ranks(hub, [&](std::uint32_t rank) {
    ThreadTransport transport(hub, rank);
    Executor executor(transport, options);
    for (std::size_t step = 0; step < plans.size(); ++step) {
      const StepReport report = executor.run(step, plans[step], rank_view(plans[step], rank));
      reports[rank].verified_bytes += report.verified_bytes;
      reports[rank].mismatches += report.mismatches;
      reports[rank].examples.insert(reports[rank].examples.end(), report.examples.begin(), report.examples.end());
      reports[rank].exchange.sent_bytes += report.exchange.sent_bytes;
      reports[rank].exchange.received_bytes += report.exchange.received_bytes;
    }
  });
  return reports;
}

}  // namespace

TEST_CASE("every element of any plan arrives, there and back, and no more travels than the plan says") {
  test::check_property("executor", [] {
    const Mllm model = *rc::gen::element(false, true) ? test::tiny_graph() : [] {
      Mllm plain = test::tiny_graph();
      for (Encoder& encoder : plain.encoders) encoder.feeds = {"llm"};
      std::erase_if(plain.encoders, [](const Encoder& encoder) { return !has_raw_input(encoder); });
      return plain;
    }();
    std::vector<StepPlan> plans;
    const Step first = any_step(model, test::tiny_lengths(model));
    plans.push_back(plan_of(first, any_options()));
    Step second = first;  // the same ranks, other samples: buffers are used again
    std::reverse(second.samples.begin(), second.samples.end());
    plans.push_back(plan_of(second, any_options()));
    ThreadHub hub(first.topology.ranks());
    std::uint64_t verified = 0;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (const StepReport& report : execute(hub, plans, {.seed = 7})) {
      RC_ASSERT(report.mismatches == 0U);
      RC_ASSERT(report.examples.empty());
      verified += report.verified_bytes;
      sent += report.exchange.sent_bytes;
      received += report.exchange.received_bytes;
    }
    RC_ASSERT(verified == expected_bytes(plans[0]) + expected_bytes(plans[1]));
    RC_ASSERT(sent == moved_bytes(plans[0]) + moved_bytes(plans[1]));
    RC_ASSERT(received == sent);
    RC_ASSERT(hub.bytes == sent);
  });
}

TEST_CASE("a single wrong bit is named: rank, step, exchange, field, item, element") {
  test::check_property("corrupted byte", [] {
    const Step step = small_step();
    const StepPlan plan = plan_of(step, balancers(Balancer::lpt, Balancer::lpt));
    // The exchanges in which rank 1 receives something, as a clean run sees them.
    ThreadHub clean(2);
    std::vector<std::size_t> sizes;
    struct Counting : ThreadTransport {
      Counting(ThreadHub& hub, std::uint32_t rank, std::vector<std::size_t>& list)
          : ThreadTransport(hub, rank), sizes(list) {}
      void all_to_all(const std::string& what, std::span<const SendRun> sends, std::span<const ReceiveRun> receives) {
        ThreadTransport::all_to_all(what, sends, receives);
        if (rank() == 1 && !receives.empty()) sizes.push_back(receives[0].bytes.size());
      }
      std::vector<std::size_t>& sizes;
    };
    test::on_ranks(clean, [&](std::uint32_t rank) {
      Counting transport(clean, rank, sizes);
      static_cast<void>(Executor(transport, ExecutorOptions{}).run(0, plan, rank_view(plan, rank)));
    });
    RC_ASSERT(!sizes.empty());
    const auto exchange = *rc::gen::inRange<std::size_t>(0, sizes.size());
    const auto byte = *rc::gen::inRange<std::size_t>(0, sizes[exchange]);
    ThreadHub hub(2);
    std::array<StepReport, 2> reports;
    test::on_ranks(hub, [&](std::uint32_t rank) {
      ThreadTransport transport(hub, rank);
      Corrupting corrupting(transport, 1, exchange, byte);
      reports[rank] = Executor(corrupting, ExecutorOptions{}).run(0, plan, rank_view(plan, rank));
    });
    RC_ASSERT(reports[0].mismatches == 0U);
    RC_ASSERT(reports[1].mismatches == 1U);
    RC_ASSERT(reports[1].examples.size() == 1U);
    RC_ASSERT(reports[1].examples[0].starts_with("rank 1, step 0, exchange "));
  });
}

TEST_CASE("the words of a mismatch") {
  const Step step = small_step();
  const StepPlan plan = plan_of(step, balancers(Balancer::home, Balancer::lpt));
  ThreadHub hub(2);
  std::array<StepReport, 2> reports;
  test::on_ranks(hub, [&](std::uint32_t rank) {
    ThreadTransport transport(hub, rank);
    Corrupting corrupting(transport, 1, 0, 17);  // token 2 of the first sample that moved
    reports[rank] = Executor(corrupting, ExecutorOptions{}).run(0, plan, rank_view(plan, rank));
  });
  REQUIRE(reports[1].examples.size() == 1);
  const std::string& text = reports[1].examples[0];
  CAPTURE(text);
  CHECK(text.starts_with(
      "rank 1, step 0, exchange home -> llm, token-ids: sample 1 unit 0, element 2 of 10: expected 0x"));
  CHECK(text.find(", found 0x") != std::string::npos);
}

TEST_CASE("sampled checks see extents that stand in each other's place; without checks nothing is compared") {
  const Origin origin{1, 2, Direction::forward, 3};
  const Extent a{.sample = 1, .unit = 0, .field = 0, .offset = 0, .bytes = 4000};
  const Extent b{.sample = 1, .unit = 1, .field = 0, .offset = 4000, .bytes = 4000};
  std::vector<std::byte> buffer(8000);
  fill(origin, a, buffer);
  fill(origin, b, buffer);
  std::uint64_t wrong = 0;
  const auto count = [&](const Mismatch&) { ++wrong; };
  CHECK(check(origin, a, buffer, 2, Verify::full, count) == 4000);
  CHECK(check(origin, b, buffer, 2, Verify::sample, count) == 24);
  CHECK(check(origin, b, buffer, 2, Verify::off, count) == 0);
  CHECK(wrong == 0);
  std::swap_ranges(buffer.begin(), buffer.begin() + 4000, buffer.begin() + 4000);
  CHECK(check(origin, a, buffer, 2, Verify::sample, count) == 24);
  CHECK(wrong >= 11);  // of 12 elements; two bytes may be equal by chance
}

TEST_CASE("extents of any length and elements of any width are written and found wrong byte by byte") {
  test::check_property("payload", [] {
    const auto width = *rc::gen::element<std::uint64_t>(1, 2, 3, 4, 8, 12);
    const Extent extent{.sample = 4,
                        .unit = 2,
                        .field = 1,
                        .offset = *rc::gen::inRange<std::uint64_t>(0, 9),
                        .bytes = width * *rc::gen::inRange<std::uint64_t>(1, 40)};
    const Origin origin{1, 0, Direction::backward, 0};
    std::vector<std::byte> buffer(extent.offset + extent.bytes);
    fill(origin, extent, buffer);
    std::vector<std::uint64_t> elements;
    const auto note = [&](const Mismatch& mismatch) { elements.push_back(mismatch.element); };
    RC_ASSERT(check(origin, extent, buffer, width, Verify::full, note) == extent.bytes);
    RC_ASSERT(elements.empty());
    const auto at = *rc::gen::inRange<std::uint64_t>(0, extent.bytes);
    buffer[extent.offset + at] ^= std::byte{0x40};
    static_cast<void>(check(origin, extent, buffer, width, Verify::full, note));
    RC_ASSERT(elements == std::vector<std::uint64_t>{at / width});
  });
}

TEST_CASE("ranks agree on an error, and on who differs") {
  ThreadHub hub(4);
  std::atomic<int> threw{0};
  test::on_ranks(hub, [&](std::uint32_t rank) {
    ThreadTransport transport(hub, rank);
    const auto said = agree(transport, "greeting", [&] { return std::to_string(rank); });
    CHECK(said == std::vector<std::string>{"0", "1", "2", "3"});
    try {
      static_cast<void>(agree(transport, "reading", [&]() -> std::string {
        if (rank == 2) throw Infeasible("no room");
        return "";
      }));
    } catch (const AgreedError& error) {
      if (std::string(error.what()) == "on rank 2: no room" && error.exit_code() == 3) ++threw;
    }
  });
  CHECK(threw == 4);
  CHECK_NOTHROW(require_equal("seed", {"1", "1"}));
  CHECK_THROWS_WITH_AS(require_equal("seed", {"1", "1", "7", "1"}),
                       "seed differs between ranks: 1 on ranks 0, 1 and 3, but 7 on rank 2", AgreedError);
  CHECK_THROWS_WITH_AS(require_equal("seed", {"9", "7"}), "seed differs between ranks: 9 on rank 0, but 7 on rank 1",
                       AgreedError);
}

TEST_CASE("a peer that never comes ends the wait with its name") {
  ThreadHub hub(2, std::chrono::milliseconds(50));
  CHECK_THROWS_WITH_AS(test::on_ranks(hub,
                                      [&](std::uint32_t rank) {
                                        if (rank == 0) ThreadTransport(hub, rank).barrier("step 0, compute llm");
                                      }),
                       "step 0, compute llm: awaited rank 1", TransportError);
}

TEST_CASE("a plan whose runs do not fit its items is refused before it is sent") {
  const Step step = small_step();
  const StepPlan plan = plan_of(step, balancers(Balancer::lpt, Balancer::lpt));
  ThreadHub hub(2, std::chrono::milliseconds(500));
  CHECK_THROWS_AS(test::on_ranks(hub,
                                 [&](std::uint32_t rank) {
                                   ThreadTransport transport(hub, rank);
                                   RankView view = rank_view(plan, rank);
                                   for (RouteView& route : view.routes) {
                                     for (PeerRun& run : route.stages[0].sends) --run.elements[0];
                                   }
                                   static_cast<void>(Executor(transport, ExecutorOptions{}).run(0, plan, view));
                                 }),
                  InvalidInput);
}

TEST_CASE("operations of a phase follow from its items, and add up over ranks") {
  const Step step = small_step();
  const StepPlan plan = plan_of(step);
  std::vector<double> sum(2, 0);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const std::vector<double> flops = forward_flops(step.model, plan, rank);
    for (std::size_t p = 0; p < 2; ++p) sum[p] += flops[p];
  }
  // LLM: 6,000,000 matrix elements and 1,000 · 1,000 of the head, two operations each; 2 · 1,000 a pair.
  const double tokens = 20 + 10 + 3;
  CHECK(sum[1] == doctest::Approx(2 * 7e6 * tokens + 2000 * (20.0 * 20 + 10 * 10 + 3 * 3)));
  CHECK(sum[0] > 2 * 6e6 * 200);
  for (const bool backward : {false, true}) {
    for (const bool causal : {false, true}) AttentionLoad(300, causal).run(1e7, backward);
    PhaseLoad().run({1e6, 1e6}, 0.5, backward);
  }
}
