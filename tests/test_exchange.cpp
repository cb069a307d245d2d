#include <algorithm>
#include <numeric>
#include <set>

#include "executor.hpp"
#include "instances.hpp"
#include "orchmllm/exchange/exchange_plan.hpp"
#include "orchmllm/exchange/hierarchical.hpp"
#include "orchmllm/exchange/link_traffic.hpp"
#include "orchmllm/exchange/rearrangement.hpp"
#include "property.hpp"

using namespace orch;

namespace {

using Ranks = std::vector<std::uint32_t>;

struct Case {
  Topology topology;
  Ranks home, encoder, llm;            // item → rank
  std::vector<std::uint32_t> pixels;   // per item
  std::vector<std::uint32_t> outputs;  // per item
};

Ranks any_assignment(std::size_t n, std::uint32_t ranks) {
  return *rc::gen::container<Ranks>(n, rc::gen::inRange<std::uint32_t>(0, ranks));
}

/// Nodes of one to four ranks each, of unequal sizes.
Case any_case() {
  const auto sizes =
      *rc::gen::container<Ranks>(*rc::gen::inRange<std::size_t>(1, 6), rc::gen::inRange<std::uint32_t>(1, 5));
  Case c{topology(sizes), {}, {}, {}, {}, {}};
  const std::uint32_t ranks = c.topology.ranks();
  const auto n = *rc::gen::inRange<std::size_t>(0, 60);
  c.home = any_assignment(n, ranks);
  c.encoder = any_assignment(n, ranks);
  c.llm = any_assignment(n, ranks);
  c.pixels = *rc::gen::container<Ranks>(n, rc::gen::inRange<std::uint32_t>(0, 9));
  c.outputs = *rc::gen::container<Ranks>(n, rc::gen::element<std::uint32_t>(0, 0, 1, 3));
  return c;
}

/// Two fields of different lengths and sizes from the encoder's layout to the LLM's.
ExchangePlan two_fields(const Case& c) {
  const Layout encoder = layout(c.encoder, c.topology.ranks());
  const Layout llm = layout(c.llm, c.topology.ranks());
  return exchange_plan(rearrangement(encoder, llm), {{{"pixels", 2, 3}, by_slot(encoder, c.pixels)},
                                                     {{"hidden", 4, 1}, by_slot(encoder, c.outputs)}});
}

}  // namespace

TEST_CASE("inverse twice is the identity, out and home again is the identity") {
  test::check_property("rearrangement algebra", [] {
    const Case c = any_case();
    const std::uint32_t ranks = c.topology.ranks();
    const Layout home = layout(c.home, ranks);
    const Layout encoder = layout(c.encoder, ranks);
    const Layout llm = layout(c.llm, ranks);
    const Rearrangement to_encoder = rearrangement(home, encoder);
    const Rearrangement to_llm = rearrangement(home, llm);
    RC_ASSERT(inverse(inverse(to_encoder)) == to_encoder);
    RC_ASSERT(compose(inverse(to_encoder), to_encoder).is_identity());
    RC_ASSERT(compose(to_llm, inverse(to_encoder)) == rearrangement(encoder, llm));
    RC_ASSERT(rearrangement(home, home).is_identity());
  });
}

TEST_CASE("an exchange brings every element of every field to its place, and its inverse brings it back") {
  test::check_property("exchange executed by hand", [] {
    const Case c = any_case();
    const ExchangePlan plan = two_fields(c);
    const ExchangePlan back = inverse(plan);
    verify(plan);
    verify(back);
    RC_ASSERT(inverse(back) == plan);
    const Layout encoder = layout(c.encoder, c.topology.ranks());
    const Layout llm = layout(c.llm, c.topology.ranks());
    const std::vector<std::vector<std::uint32_t>> lengths{c.pixels, c.outputs};
    for (std::size_t field = 0; field < 2; ++field) {
      const std::uint64_t each = plan.payload[field].field.elements_per_length;
      const test::Cluster before = test::named(encoder, lengths[field], each);
      const test::Cluster there = test::exchange(plan, field, before);
      RC_ASSERT(there == test::named(llm, lengths[field], each));
      RC_ASSERT(test::exchange(back, field, there) == before);
    }
    for (std::size_t t = 0; t < plan.transfers.size(); ++t) RC_ASSERT(plan.bytes(t) > 0U);
    // Nothing to do exactly if no element changes its rank.
    bool stays = true;
    for (std::size_t i = 0; i < c.llm.size(); ++i) {
      if (c.pixels[i] + c.outputs[i] > 0) stays = stays && c.encoder[i] == c.llm[i];
    }
    RC_ASSERT(plan.identity == stays);
  });
}

TEST_CASE("node first, every element reaches the same place, and comes back") {
  test::check_property("hierarchical exchange executed by hand", [] {
    const Case c = any_case();
    const ExchangePlan plan = two_fields(c);
    const HierarchicalExchange stages = hierarchical(plan, c.topology);
    const HierarchicalExchange back = inverse(stages);
    for (const ExchangePlan* stage : stages.stages()) verify(*stage);
    for (const ExchangePlan* stage : back.stages()) verify(*stage);
    const Layout encoder = layout(c.encoder, c.topology.ranks());
    const std::vector<std::vector<std::uint32_t>> lengths{c.pixels, c.outputs};
    for (std::size_t field = 0; field < 2; ++field) {
      const test::Cluster before = test::named(encoder, lengths[field], plan.payload[field].field.elements_per_length);
      const test::Cluster there = test::exchange(plan, field, before);
      RC_ASSERT(test::exchange(stages, field, before) == there);
      RC_ASSERT(test::exchange(back, field, there) == before);
    }
  });
}

TEST_CASE("node first, one message per pair of nodes and rail, no byte more between nodes") {
  test::check_property("hierarchical traffic", [] {
    const Case c = any_case();
    const ExchangePlan plan = two_fields(c);
    const HierarchicalExchange stages = hierarchical(plan, c.topology);
    for (const ExchangePlan* stage : {&stages.inside, &stages.gather, &stages.scatter}) {
      RC_ASSERT(traffic(*stage, c.topology).inter_node_bytes == 0U);
    }
    const Traffic direct = traffic(plan, c.topology);
    const Traffic staged = traffic(stages, c.topology);
    RC_ASSERT(staged.inter_node_bytes == direct.inter_node_bytes);
    RC_ASSERT(staged.local_bytes == direct.local_bytes);
    RC_ASSERT(staged.intra_node_bytes >= direct.intra_node_bytes);
    RC_ASSERT(staged.inter_node_messages <= direct.inter_node_messages);
    std::set<std::pair<std::uint32_t, std::uint32_t>> used;  // node pairs and rails, as ranks
    std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>> wanted;
    for (const Transfer& t : stages.between.transfers) {
      if (link_between(t.from, t.to, c.topology) == Link::inter_node) used.insert({t.from, t.to});
    }
    for (const Transfer& t : plan.transfers) {
      if (link_between(t.from, t.to, c.topology) != Link::inter_node) continue;
      wanted.insert({c.topology.node_of[t.from], c.topology.node_of[t.to], c.topology.rail(t.to)});
    }
    RC_ASSERT(staged.inter_node_messages == used.size());
    RC_ASSERT(used.size() <= wanted.size());
    // Every rank on its own port: nothing is passed on between nodes but by ranks of the receiver's rail.
    RC_ASSERT(traffic(stages.between, c.topology).inter_node_bytes == direct.inter_node_bytes);
  });
}

TEST_CASE("bytes on links add up, whichever way they are counted") {
  test::check_property("traffic", [] {
    const Case c = any_case();
    const ExchangePlan plan = two_fields(c);
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < c.pixels.size(); ++i) all += 6ULL * c.pixels[i] + 4ULL * c.outputs[i];
    const Traffic sum = traffic(plan, c.topology);
    RC_ASSERT(sum.local_bytes + sum.moved_bytes() == all);
    RC_ASSERT(sum.cross_rail_bytes <= sum.inter_node_bytes);
    LinkTraffic by_rank;
    for (const LinkTraffic& rank : link_traffic(plan, c.topology)) {
      for (const std::size_t link : {0U, 1U}) {
        by_rank.sent[link] += rank.sent[link];
        by_rank.received[link] += rank.received[link];
        by_rank.peers[link] += rank.peers[link];
      }
    }
    RC_ASSERT(by_rank.sent == by_rank.received);
    RC_ASSERT(by_rank.sent[0] == sum.intra_node_bytes);
    RC_ASSERT(by_rank.sent[1] == sum.inter_node_bytes);
    RC_ASSERT(by_rank.peers[0] + by_rank.peers[1] == sum.intra_node_messages + sum.inter_node_messages);
    const Traffic home_again = traffic(inverse(plan), c.topology);
    RC_ASSERT(home_again.inter_node_bytes == sum.inter_node_bytes);
    RC_ASSERT(home_again.inter_node_messages == sum.inter_node_messages);
  });
}

TEST_CASE("times of both schedules, by hand") {
  // Two nodes of two ranks; rank 0 sends 100 bytes to each of the ranks 1, 2, 3.
  const Ranks before{0, 0, 0};
  const Ranks after{1, 2, 3};
  const Layout from = layout(before, 4);
  const ExchangePlan plan = exchange_plan(rearrangement(from, layout(after, 4)), {{{"x", 100, 1}, {1, 1, 1}}});
  const Topology nodes = uniform_topology(4, 2);
  const LinkRates rates{{100, 10}, 1, 0.5};
  // Direct: the port carries two messages of 100 bytes: 1 + 2 · 0.5 + 200 / 10.
  CHECK(seconds(link_traffic(plan, nodes), rates) == doctest::Approx(22));
  // Node first: inside and gather 1 + 2 · 0.5 + 200 / 100 (to rank 1 its own, and what is for rank 3), then ranks 0 and
  // 1 send 100 bytes each: 1 + 0.5 + 10; nothing is left to scatter.
  const HierarchicalExchange stages = hierarchical(plan, nodes);
  CHECK(seconds(link_traffic(stages, nodes), rates) == doctest::Approx(4 + 11.5));
  CHECK(staging_bytes(stages) == std::vector<std::uint64_t>{100, 100, 100, 100});
  // One port a node: node first, it carries what ranks 0 and 1 send: 1 + 0.5 + 200 / 10.
  const LinkRates shared{{100, 10}, 1, 0.5, 1};
  CHECK(seconds(link_traffic(plan, nodes, shared), shared) == doctest::Approx(22));
  CHECK(seconds(link_traffic(stages, nodes, shared), shared) == doctest::Approx(4 + 21.5));
}

TEST_CASE("a rank sends to the rank after it first, to itself last") {
  const Ranks before{1, 1, 1, 1};
  const Ranks after{0, 1, 2, 3};
  const Layout from = layout(before, 4);
  const ExchangePlan plan = exchange_plan(rearrangement(from, layout(after, 4)), {{{"x", 1, 1}, {1, 1, 1, 1}}});
  Ranks order;
  for (const std::uint32_t t : send_order(plan, 1)) order.push_back(plan.transfers[t].to);
  CHECK(order == Ranks{2, 3, 0, 1});
}

TEST_CASE("verification names the first rank pair that does not fit") {
  const Ranks before{0, 0, 1, 1};
  const Ranks after{0, 1, 0, 1};
  const Layout from = layout(before, 2);
  const ExchangePlan good =
      exchange_plan(rearrangement(from, layout(after, 2)), {{{"a", 1, 2}, {1, 2, 3, 4}}, {{"b", 1, 1}, {1, 1, 1, 1}}});
  verify(good);
  const auto refused = [&](const char* pair, auto&& damage) {
    ExchangePlan bad = good;
    damage(bad);
    CHECK_THROWS_WITH_AS(verify(bad), doctest::Contains(pair), InvalidInput);
  };
  refused("0 -> 1", [](ExchangePlan& p) { p.parts[2].receive_offset += 1; });
  refused("1 -> 1", [](ExchangePlan& p) { p.parts[7].elements += 1; });
  refused("field \"b\"", [](ExchangePlan& p) { p.parts[7].elements += 1; });
  refused("1 -> 0", [](ExchangePlan& p) { p.parts[4].send_offset += 2; });
  refused("0 -> 1", [](ExchangePlan& p) { p.unpack[p.transfers[1].first_unpacked] ^= 1U; });
  refused("1 -> 0", [](ExchangePlan& p) { p.transfers[2].items = 9; });
  refused("0 -> 7", [](ExchangePlan& p) { p.transfers[1].to = 7; });
  refused("in order", [](ExchangePlan& p) { p.transfers[1].to = 0; });
  refused("rank 1", [](ExchangePlan& p) { p.send_elements[0][1] += 1; });
}

TEST_CASE("layouts and lengths of different items cannot be rearranged into one another") {
  const Ranks two{0, 1};
  const Ranks three{0, 1, 1};
  CHECK_THROWS_AS((void)rearrangement(layout(two, 2), layout(three, 2)), InvalidInput);
  CHECK_THROWS_AS((void)layout(three, 1), InvalidInput);
  const Layout l = layout(two, 2);
  CHECK_THROWS_AS((void)exchange_plan(rearrangement(l, l), {{{"x", 1, 1}, {1}}}), InvalidInput);
  CHECK_THROWS_AS((void)exchange_plan(rearrangement(l, l), {{{"x", 1, ~std::uint64_t{0}}, {2, 2}}}), Overflow);
}
