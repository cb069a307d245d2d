// Fluid flows, fabrics and exchanges played over them: closed forms, and invariants on random networks.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "clusters.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/exchange/link_traffic.hpp"
#include "orchmllm/sim/collectives.hpp"
#include "orchmllm/sim/exchange_time.hpp"
#include "orchmllm/sim/fluid.hpp"
#include "orchmllm/sim/fluid_exchange.hpp"
#include "orchmllm/sim/step_work.hpp"
#include "property.hpp"
#include "steps.hpp"

using namespace orch;
using namespace orch::sim;

namespace {

constexpr double gbyte_s = 1e9;  // one byte per nanosecond

FluidNetwork network_of(const std::vector<double>& bytes_per_nanosecond) {
  FluidNetwork network;
  for (const double bandwidth : bytes_per_nanosecond) (void)network.add_link(bandwidth * gbyte_s);
  return network;
}

FlowId start(FluidNetwork& network, Nanoseconds at, double volume, const std::vector<LinkUse>& path, Flow flow = {}) {
  flow.volume = volume;
  flow.path = path;
  return network.start(at, flow);
}

/// flow → its end.
std::vector<Nanoseconds> play(FluidNetwork& network) {
  std::vector<Nanoseconds> ends;
  while (const auto next = network.next_event()) {
    for (const Completion& end : network.advance(*next)) {
      ends.resize(std::max<std::size_t>(ends.size(), end.flow + 1), 0);
      ends[end.flow] = end.time;
    }
  }
  return ends;
}

}  // namespace

// --- closed forms of fluid flows ------------------------------------------------------------------------------------

TEST_CASE("fluid: one flow takes its volume over the link's bandwidth, rounded up to a nanosecond") {
  FluidNetwork network = network_of({4});
  CHECK_FALSE(network.next_event());
  const FlowId flow = start(network, 0, 1000, {{0}});
  CHECK(network.rate(flow) == 4 * gbyte_s);
  CHECK(network.next_event() == 250);
  CHECK(network.advance(249).empty());
  CHECK(network.advance(250) == std::vector<Completion>{{250, flow}});
  CHECK(network.rate(flow) == 0);
  CHECK(network.carried(0) == 1000);
  CHECK_FALSE(network.next_event());
  (void)start(network, 300, 1001, {{0}});
  CHECK(network.next_event() == 300);
  CHECK(play(network).back() == 551);
}

TEST_CASE("fluid: flows of one link share it, and those that stay share what the others leave") {
  FluidNetwork network = network_of({1});
  const std::vector<double> volumes{500, 100, 300, 100};
  for (const double volume : volumes) (void)start(network, 0, volume, {{0}});
  CHECK(network.rate(2) == 0.25 * gbyte_s);
  // 100 each at a quarter; 200 more at a half for two; 200 alone.
  CHECK(play(network) == std::vector<Nanoseconds>{1000, 400, 800, 400});
}

TEST_CASE("fluid: a long flow over three links and a local one on each") {
  FluidNetwork network = network_of({1, 2, 3});
  const FlowId across = start(network, 0, 1e6, {{0}, {1}, {2}});
  const std::vector<FlowId> local{start(network, 0, 1e6, {{0}}), start(network, 0, 1e6, {{1}}),
                                  start(network, 0, 1e6, {{2}})};
  CHECK(network.rate(across) == 0.5 * gbyte_s);
  CHECK(network.rate(local[0]) == 0.5 * gbyte_s);
  CHECK(network.rate(local[1]) == 1.5 * gbyte_s);
  CHECK(network.rate(local[2]) == 2.5 * gbyte_s);
  CHECK(network.fillings() == 1);
}

TEST_CASE("fluid: what a capped flow leaves goes to the others") {
  FluidNetwork network = network_of({10});
  const FlowId capped = start(network, 0, 100, {{0}}, {.cap = 2 * gbyte_s});
  const FlowId free = start(network, 0, 800, {{0}});
  const FlowId other = start(network, 0, 800, {{0}}, {.cap = 6 * gbyte_s});
  CHECK(network.rate(capped) == 2 * gbyte_s);
  CHECK(network.rate(free) == 4 * gbyte_s);
  CHECK(network.rate(other) == 4 * gbyte_s);
  // At 50 ns the capped one is done and the others go on with 5 each: 600 left, 120 ns.
  CHECK(play(network) == std::vector<Nanoseconds>{50, 170, 170});
}

TEST_CASE("fluid: a weight is what a flow puts on a link for each of its bytes") {
  FluidNetwork network = network_of({10, 8});
  const FlowId whole = start(network, 0, 1e3, {{0}});
  const FlowId quarter = start(network, 0, 1e3, {{0, 0.25}});
  CHECK(network.rate(whole) == 8 * gbyte_s);
  CHECK(network.rate(quarter) == 8 * gbyte_s);
  const FlowId twice = start(network, 0, 1e3, {{0, 0.25}, {1, 2}});
  CHECK(network.rate(twice) == 4 * gbyte_s);
  CHECK(network.rate(whole) == doctest::Approx(9 / 1.25 * gbyte_s));
  (void)play(network);
  CHECK(network.carried(0) == 1500);
  CHECK(network.carried(1) == 2000);
}

TEST_CASE("fluid: flows that start later take their share from then on") {
  FluidNetwork network = network_of({1});
  (void)start(network, 0, 100, {{0}});
  (void)start(network, 50, 100, {{0}});
  CHECK(network.next_event() == 50);
  // 50 alone, then halves: the first ends at 150 and leaves 50 of the second.
  CHECK(play(network) == std::vector<Nanoseconds>{150, 200});
  CHECK(network.now() == 200);
  CHECK_THROWS_AS((void)start(network, 199, 1, {{0}}), InvalidInput);
  CHECK_THROWS_AS((void)network.advance(199), InvalidInput);
}

TEST_CASE("fluid: a flow of nothing ends when it starts, and one that has waited is not forgotten") {
  FluidNetwork network = network_of({1, 1});
  (void)start(network, 0, 0, {{0}});
  (void)start(network, 7, 0, {{1}});
  (void)start(network, 7, 10, {{1}});
  CHECK(network.next_event() == 0);
  CHECK(network.advance(0) == std::vector<Completion>{{0, 0}});
  CHECK(network.advance(6).empty());
  CHECK(network.advance(100) == std::vector<Completion>{{7, 1}, {17, 2}});
}

TEST_CASE("fluid: an instant is one change, whatever starts and ends in it") {
  FluidNetwork network = network_of({1, 1, 1});
  for (std::uint32_t i = 0; i < 999; ++i) (void)start(network, 0, 12, {{i % 3}, {(i + 1) % 3}});
  CHECK(network.next_event() == 12 * 666);
  CHECK(network.fillings() == 1);
  CHECK(network.advance(12 * 666).size() == 999);
  for (std::uint32_t i = 0; i < 999; ++i) (void)start(network, network.now(), 12, {{i % 3}});
  CHECK(network.next_event() == 12 * 666 + 12 * 333);
  CHECK(network.fillings() == 2);
}

TEST_CASE("fluid: at the end of a flow that lingers its neighbours gain at once, those behind them adapt in time") {
  const auto play_three = [](Nanoseconds linger) {
    FluidNetwork network = network_of({1, 2});
    (void)start(network, 0, 100, {{0}}, {.linger = linger});
    (void)start(network, 0, 300, {{0}, {1}});
    (void)start(network, 0, 450, {{1}});
    return play(network);
  };
  // The first two have a half each until 200, the third 1.5. Then 200 and 150 are left, at 1 each.
  CHECK(play_three(0) == std::vector<Nanoseconds>{200, 400, 350});
  // Until 250 the third keeps its 1.5, which leaves the second no more than its half: 175 and 75 are left.
  CHECK(play_three(50) == std::vector<Nanoseconds>{200, 425, 325});

  FluidNetwork network = network_of({1, 2});
  (void)start(network, 0, 100, {{0}}, {.linger = 50});
  (void)start(network, 0, 300, {{0}, {1}});
  (void)start(network, 0, 450, {{1}}, {.cap = gbyte_s});
  // Here the second gains what its neighbour leaves.
  CHECK(play(network) == std::vector<Nanoseconds>{200, 400, 450});
  CHECK(network.fillings() == 4);  // start, and 50 after the first end, and two ends
}

TEST_CASE("fluid: on a crowded link the share of a flow that lingers stays idle until its time is over") {
  std::vector<double> bandwidth(101, 100);
  FluidNetwork network = network_of(bandwidth);
  for (LinkId own = 1; own <= 100; ++own) {
    (void)start(network, 0, own == 1 ? 100 : 1000, {{0}, {own}}, {.linger = own == 1 ? 50U : 0U});
  }
  CHECK(network.next_event() == 100);
  CHECK(network.advance(100).size() == 1);
  CHECK(network.rate(5) == gbyte_s);
  CHECK(network.next_event() == 150);
  CHECK(network.advance(150).empty());
  CHECK(network.rate(5) == doctest::Approx(100.0 / 99 * gbyte_s));
}

TEST_CASE("fluid: what cannot be is refused") {
  FluidNetwork network = network_of({1});
  CHECK_THROWS_AS((void)network.add_link(0), InvalidInput);
  CHECK_THROWS_AS((void)network.add_link(INFINITY), InvalidInput);
  CHECK_THROWS_AS((void)start(network, 0, 1, {}), InvalidInput);
  CHECK_THROWS_AS((void)start(network, 0, 1, {{1}}), InvalidInput);
  CHECK_THROWS_AS((void)start(network, 0, 1, {{0, 0}}), InvalidInput);
  CHECK_THROWS_AS((void)start(network, 0, -1, {{0}}), InvalidInput);
  CHECK_THROWS_AS((void)start(network, 0, NAN, {{0}}), InvalidInput);
  CHECK_THROWS_AS((void)start(network, 0, 1, {{0}}, {.cap = 0}), InvalidInput);
  (void)start(network, 0, 1e300, {{0}});
  CHECK_THROWS_AS((void)network.next_event(), InvalidInput);
}

// --- invariants of random networks ----------------------------------------------------------------------------------

namespace {

struct RandomFlow {
  Nanoseconds at = 0;
  double volume = 0;
  std::vector<LinkUse> path;
  double cap = std::numeric_limits<double>::infinity();  ///< bytes/s
  Nanoseconds linger = 0;
};

struct RandomNetwork {
  std::vector<double> bandwidth;  ///< bytes per nanosecond
  std::vector<RandomFlow> flows;
  bool lingers = false;  ///< shares of some flows, after their end

  [[nodiscard]] FluidNetwork started() const {
    FluidNetwork network = network_of(bandwidth);
    for (const RandomFlow& flow : flows) {
      (void)start(network, flow.at, flow.volume, flow.path, {.cap = flow.cap, .linger = flow.linger});
    }
    return network;
  }
};

/// Few instants, volumes and paths, so that flows meet, tie and share classes.
RandomNetwork any_network() {
  RandomNetwork result;
  const auto links = *rc::gen::inRange<std::uint32_t>(1, 7);
  for (std::uint32_t link = 0; link < links; ++link) result.bandwidth.push_back(*rc::gen::inRange(1, 20));
  result.lingers = *rc::gen::inRange(0, 3) == 0;
  const auto flows = *rc::gen::inRange(1, 30);
  for (int i = 0; i < flows; ++i) {
    RandomFlow flow;
    flow.at = *rc::gen::element<Nanoseconds>(0, 0, 0, 100, 117, 500);
    flow.volume = *rc::gen::oneOf(rc::gen::just(1000), rc::gen::inRange(0, 5000));
    for (std::uint32_t link = 0; link < links; ++link) {
      if (*rc::gen::inRange(0, 3) > 0) continue;
      flow.path.push_back({link, *rc::gen::element(1.0, 1.0, 0.25, 3.0 / 7)});
    }
    if (flow.path.empty()) flow.path.push_back({0, 1});
    if (*rc::gen::inRange(0, 4) == 0) flow.cap = *rc::gen::inRange(1, 8) * gbyte_s;
    if (result.lingers) flow.linger = *rc::gen::inRange<Nanoseconds>(0, 200);
    result.flows.push_back(std::move(flow));
  }
  return result;
}

/// No link is overfull. Unless shares linger, every flow that flows is at its cap, or has a full link on which nobody
/// is faster.
void check_max_min(const RandomNetwork& network, const std::vector<double>& rates) {
  std::vector<double> used(network.bandwidth.size(), 0);
  std::vector<double> fastest(network.bandwidth.size(), 0);
  for (std::size_t f = 0; f < rates.size(); ++f) {
    for (const LinkUse& use : network.flows[f].path) {
      used[use.link] += rates[f] * use.weight;
      fastest[use.link] = std::max(fastest[use.link], rates[f]);
    }
  }
  constexpr double rounding = 1e-6;
  for (std::size_t link = 0; link < used.size(); ++link) {
    RC_ASSERT(used[link] <= network.bandwidth[link] * gbyte_s * (1 + rounding));
  }
  for (std::size_t f = 0; f < rates.size(); ++f) {
    if (rates[f] == 0) continue;
    RC_ASSERT(rates[f] <= network.flows[f].cap * (1 + rounding));
    if (network.lingers) continue;
    const bool at_cap = rates[f] >= network.flows[f].cap * (1 - rounding);
    const bool at_bottleneck = std::ranges::any_of(network.flows[f].path, [&](const LinkUse& use) {
      return used[use.link] >= network.bandwidth[use.link] * gbyte_s * (1 - rounding) &&
             rates[f] >= fastest[use.link] * (1 - rounding);
    });
    RC_ASSERT(at_cap || at_bottleneck);
  }
}

}  // namespace

TEST_CASE("fluid: rates are max-min fair at every instant; a flow has its volume when it ends, and not before") {
  test::check_property("max-min fairness and conservation", [] {
    const RandomNetwork random = any_network();
    FluidNetwork network = random.started();
    std::vector<double> had(random.flows.size(), 0);
    std::vector<double> last_rate(random.flows.size(), 0);
    std::size_t ended = 0;
    while (const auto next = network.next_event()) {
      std::vector<double> rates;
      for (FlowId f = 0; f < random.flows.size(); ++f) rates.push_back(network.rate(f));
      check_max_min(random, rates);
      const auto interval = static_cast<double>(*next - network.now()) / gbyte_s;
      for (std::size_t f = 0; f < rates.size(); ++f) {
        had[f] += rates[f] * interval;
        if (rates[f] > 0) last_rate[f] = rates[f];
      }
      for (const Completion& end : network.advance(*next)) {
        RC_ASSERT(end.time == *next);
        RC_ASSERT(had[end.flow] >= random.flows[end.flow].volume - 1e-6);
        RC_ASSERT(had[end.flow] <= random.flows[end.flow].volume + last_rate[end.flow] / gbyte_s + 1e-6);
        ++ended;
      }
    }
    RC_ASSERT(ended == random.flows.size());
    for (LinkId link = 0; link < network.links(); ++link) {
      double bytes = 0;
      for (const RandomFlow& flow : random.flows) {
        for (const LinkUse& use : flow.path) bytes += use.link == link ? flow.volume * use.weight : 0;
      }
      RC_ASSERT(std::abs(network.carried(link) - bytes) <= 1e-6);
    }
  });
}

TEST_CASE("fluid: the same flows end at the same times, however time moves on") {
  test::check_property("determinism", [] {
    const RandomNetwork random = any_network();
    FluidNetwork network = random.started();
    std::vector<Completion> all;
    while (const auto next = network.next_event()) {
      const auto ended = network.advance(*next);
      RC_ASSERT(std::ranges::is_sorted(ended, {}, &Completion::flow));
      all.insert(all.end(), ended.begin(), ended.end());
    }
    // What ends speeds others up, which may end within the same nanosecond: then by time alone.
    RC_ASSERT(std::ranges::is_sorted(all, {}, &Completion::time));

    FluidNetwork at_once = random.started();
    RC_ASSERT(at_once.advance(Nanoseconds{1} << 40U) == all);

    FluidNetwork in_steps = random.started();
    std::vector<Completion> stepped;
    const auto step = *rc::gen::inRange<Nanoseconds>(1, 300);
    for (Nanoseconds now = 0; stepped.size() < all.size(); now += step) {
      const auto ended = in_steps.advance(now);
      stepped.insert(stepped.end(), ended.begin(), ended.end());
    }
    RC_ASSERT(stepped == all);
  });
}

TEST_CASE("fluid: flows that start when they are due end as if they had been announced, also after others have ended") {
  test::check_property("starts in time", [] {
    RandomNetwork random = any_network();
    std::ranges::stable_sort(random.flows, {}, &RandomFlow::at);
    FluidNetwork announced = random.started();
    const std::vector<Nanoseconds> expected = play(announced);

    FluidNetwork network = network_of(random.bandwidth);
    std::vector<Nanoseconds> ends(random.flows.size(), 0);
    for (std::size_t f = 0; f < random.flows.size(); ++f) {
      for (const Completion& end : network.advance(random.flows[f].at)) ends[end.flow] = end.time;
      (void)start(network, random.flows[f].at, random.flows[f].volume, random.flows[f].path,
                  {.cap = random.flows[f].cap, .linger = random.flows[f].linger});
    }
    for (const Completion& end : network.advance(Nanoseconds{1} << 40U)) ends[end.flow] = end.time;
    RC_ASSERT(ends == expected);
  });
}

// --- fabrics --------------------------------------------------------------------------------------------------------

namespace {

/// Nodes of two GPUs, NVLink 100 GB/s, NIC 10 GB/s, no latencies.
Cluster small_cluster() {
  Cluster c;
  c.gpus_per_node = 2;
  c.links.nvlink_bandwidth = 100e9;
  c.links.nic_bandwidth = 10e9;
  return c;
}

/// The same with leaf switches.
Cluster leaf_cluster(std::uint32_t nodes_per_leaf, std::uint32_t rails, double oversubscription) {
  Cluster c = small_cluster();
  c.links.nodes_per_leaf = nodes_per_leaf;
  c.links.rails = rails;
  c.links.oversubscription = oversubscription;
  return c;
}

Fabric fabric_of(const Cluster& cluster, std::uint32_t ranks) { return {cluster.links, cluster.topology(ranks)}; }

double seconds_alone(const Fabric& fabric, double volume, const std::vector<LinkUse>& path) {
  FluidNetwork network = fabric.network();
  (void)network.start(0, {.volume = volume, .path = path});
  return static_cast<double>(play(network)[0]) / 1e9;
}

}  // namespace

TEST_CASE("fabric: the way inside a node, under a leaf, and over the spine") {
  const Fabric plain = fabric_of(small_cluster(), 8);
  CHECK_FALSE(plain.has_leaf_links());
  CHECK(plain.path(0, 1) == std::vector<LinkUse>{{plain.nvlink_out(0)}, {plain.nvlink_in(1)}});
  CHECK(plain.path(1, 7) == std::vector<LinkUse>{{plain.nic_out(1)}, {plain.nic_in(7)}});
  CHECK(plain.bandwidth()[plain.nvlink_in(3)] == 100e9);
  CHECK(plain.bandwidth()[plain.nic_out(3)] == 10e9);

  // Nodes {0, 1} {2, 3} under the first pair of leaves, {4, 5} {6, 7} under the second; GPU i of a node on rail i.
  const Fabric rails = fabric_of(leaf_cluster(2, 2, 4), 8);
  CHECK(rails.leaf(0) == rails.leaf(2));
  CHECK(rails.leaf(1) == rails.leaf(3));
  CHECK(rails.leaf(0) != rails.leaf(1));
  CHECK(rails.leaf(6) != rails.leaf(2));
  CHECK(rails.path(0, 2) == std::vector<LinkUse>{{rails.nic_out(0)}, {rails.nic_in(2)}});
  CHECK(rails.path(0, 3).size() == 4);
  CHECK(rails.path(0, 4) ==
        std::vector<LinkUse>{
            {rails.nic_out(0)}, {rails.nic_in(4)}, {rails.leaf_up(rails.leaf(0))}, {rails.leaf_down(rails.leaf(4))}});
  CHECK(rails.bandwidth()[rails.leaf_up(3)] == 2 * 10e9 / 4);

  // One leaf for all NICs of two nodes; the last leaf has one node only.
  const Fabric leaves = fabric_of(leaf_cluster(2, 1, 2), 6);
  CHECK(leaves.path(0, 3).size() == 2);
  CHECK(leaves.path(0, 5).size() == 4);
  CHECK(leaves.bandwidth()[leaves.leaf_up(0)] == 4 * 10e9 / 2);
  CHECK(leaves.bandwidth()[leaves.leaf_down(1)] == 2 * 10e9 / 2);
}

TEST_CASE("fabric: a ring alone takes what the collectives' model says") {
  Cluster c = small_cluster();
  for (const auto& [nic, nics] : {std::pair(10e9, 0U), {80e9, 0U}, {10e9, 1U}}) {  // NICs or NVLink set the pace
    c.links.nic_bandwidth = nic;
    c.links.nics_per_node = nics;
    const Fabric fabric = fabric_of(c, 8);
    std::vector<std::uint32_t> ranks(8);
    std::iota(ranks.begin(), ranks.end(), 0U);
    for (const std::uint32_t n : {2U, 4U, 8U}) {
      const std::span<const std::uint32_t> group(ranks.data(), n);
      CHECK(seconds_alone(fabric, 1e9, fabric.ring(group)) ==
            doctest::Approx(ring_seconds(1e9, {n, std::min(n, c.gpus_per_node)}, c.links)));
    }
    const std::vector<std::uint32_t> replicas{1, 3, 5, 7};
    CHECK(seconds_alone(fabric, 2e9, fabric.ring(replicas)) ==
          doctest::Approx(all_reduce_seconds(1e9, {4, 1}, c.links)));
  }
}

TEST_CASE("fabric: a ring crosses each leaf's boundary once a rail") {
  // Leaves of two nodes, each with 4 NICs of 10 GB/s and 4 · 10 / 8 = 5 GB/s up. The ring leaves a leaf once, on both
  // rails, with 7/8 of the volume: 5 GB/s instead of the 20 of a node's NICs.
  const Fabric fabric = fabric_of(leaf_cluster(2, 1, 8), 8);
  std::vector<std::uint32_t> ranks(8);
  std::iota(ranks.begin(), ranks.end(), 0U);
  CHECK(seconds_alone(fabric, 1e9, fabric.ring(ranks)) == doctest::Approx(7.0 / 8 / 5));
}

// --- exchanges ------------------------------------------------------------------------------------------------------

namespace {

/// `bytes` from every rank to every other one that `wanted` names.
template <class Wanted>
std::vector<Message> all_pairs(std::uint32_t ranks, std::uint64_t bytes, Wanted&& wanted) {
  std::vector<Message> result;
  for (std::uint32_t from = 0; from < ranks; ++from) {
    for (std::uint32_t to = 0; to < ranks; ++to) {
      if (wanted(from, to)) result.push_back({from, to, bytes});
    }
  }
  return result;
}

/// The endpoint model's time of each rank, seconds.
std::vector<double> endpoint_seconds(std::span<const Message> messages, const Topology& topology,
                                     const LinkRates& rates) {
  std::vector<LinkTraffic> traffic(topology.ranks());
  for (const Message& m : messages) {
    if (m.from == m.to || m.bytes == 0) continue;
    const auto link = static_cast<std::size_t>(link_between(m.from, m.to, topology));
    traffic[m.from].sent[link] += m.bytes;
    traffic[m.to].received[link] += m.bytes;
    ++traffic[m.from].peers[link];
  }
  std::vector<double> result;
  for (const LinkTraffic& rank : traffic) {
    result.push_back(std::max(rank.seconds(Link::intra_node, rates), rank.seconds(Link::inter_node, rates)));
  }
  return result;
}

Cluster with_latencies(Cluster c) {
  c.links.exchange_base_seconds = 15e-6;
  c.links.exchange_peer_seconds = 1.5e-6;
  return c;
}

}  // namespace

TEST_CASE("exchange: uniform inside a node, it takes what the endpoint model says") {
  Cluster c = with_latencies(small_cluster());
  c.gpus_per_node = 8;
  const Fabric fabric = fabric_of(c, 8);
  const auto messages = all_pairs(8, 3'000'000, [](auto, auto) { return true; });
  const PlayedExchange played = play_exchange(messages, fabric, c.exchange_rates(), 0);
  // 15 + 7 · 1.5 µs, then 7 · 3 MB at 100 GB/s.
  for (const Nanoseconds finish : played.finish) CHECK(finish == 25'500 + 210'000);
  CHECK(played.makespan == 235'500);
  CHECK(played.fillings == 2);
  CHECK(played.carried[fabric.nvlink_in(3)] == 21e6);
  CHECK(played.carried[fabric.nic_out(3)] == 0);
}

TEST_CASE("exchange: uniform between nodes without blocking, it takes a NIC's bytes over its bandwidth") {
  const Cluster c = small_cluster();
  const Fabric fabric = fabric_of(c, 16);
  const auto messages = all_pairs(16, 100'000, [](auto from, auto to) { return from / 2 != to / 2; });
  const PlayedExchange played = play_exchange(messages, fabric, c.exchange_rates(), 0);
  CHECK(played.makespan == 14 * 10'000);
  CHECK(played.carried[fabric.nic_out(3)] == 14e5);
}

TEST_CASE("exchange: ranks that share a NIC share its bandwidth") {
  Cluster c = small_cluster();
  c.links.nics_per_node = 1;
  const auto messages = all_pairs(8, 100'000, [](auto from, auto to) { return from / 2 != to / 2; });
  const Fabric fabric = fabric_of(c, 8);
  CHECK(fabric.nic_out(3) == fabric.nic_out(2));
  const PlayedExchange played = play_exchange(messages, fabric, c.exchange_rates(), 0);
  CHECK(played.makespan == 2 * 6 * 10'000);
  CHECK(played.carried[fabric.nic_out(3)] == 12e5);
  // Instances of two GPUs have a node's NIC to themselves.
  CHECK(c.exchange_rates(2).ports_per_node == 1);
  CHECK(c.exchange_rates(2).bandwidth[1] == 10e9);
}

TEST_CASE("exchange: n senders to one receiver share its NIC") {
  const Cluster c = with_latencies(small_cluster());
  const Fabric fabric = fabric_of(c, 16);
  std::vector<Message> messages;
  for (std::uint32_t from = 2; from < 16; ++from) messages.push_back({from, 0, 1'000'000});
  messages.push_back({1, 0, 1'000'000});  // by NVLink beside them
  messages.push_back({0, 0, 1'000'000});  // a copy
  messages.push_back({3, 1, 0});          // nothing
  const PlayedExchange played = play_exchange(messages, fabric, c.exchange_rates(), 0);
  CHECK(played.finish[0] == 16'500 + 14 * 100'000);
  CHECK(played.finish[9] == played.finish[0]);
  CHECK(played.finish[1] == 16'500 + 10'000);
}

TEST_CASE("exchange: between leaves it takes as many times longer as they are oversubscribed") {
  const auto messages = all_pairs(8, 1'000'000, [](auto from, auto to) { return from / 2 != to / 2; });
  for (const double factor : {1.0, 2.0, 5.0}) {
    const Cluster c = leaf_cluster(1, 1, factor);
    const PlayedExchange played = play_exchange(messages, fabric_of(c, 8), c.exchange_rates(), 0);
    CHECK(static_cast<double>(played.makespan) == doctest::Approx(factor * 6 * 100'000));
  }
}

TEST_CASE("exchange: on its rail, under its leaf, it does not feel oversubscription") {
  const auto on_rail = all_pairs(8, 1'000'000, [](auto from, auto to) { return from != to && from % 2 == to % 2; });
  const auto across =
      all_pairs(8, 1'000'000, [](auto from, auto to) { return from / 2 != to / 2 && from % 2 != to % 2; });
  for (const double factor : {1.0, 8.0}) {
    const Cluster c = leaf_cluster(4, 2, factor);
    const Fabric fabric = fabric_of(c, 8);
    CHECK(play_exchange(on_rail, fabric, c.exchange_rates(), 0).makespan == 3 * 100'000);
    CHECK(static_cast<double>(play_exchange(across, fabric, c.exchange_rates(), 0).makespan) ==
          doctest::Approx(factor * 3 * 100'000));
  }
}

TEST_CASE("exchange: a plan's transfers are its messages") {
  const std::vector<std::uint32_t> before{0, 0, 1, 2, 3};
  const std::vector<std::uint32_t> after{0, 3, 2, 1, 3};
  const Layout from = layout(before, 4);
  const ExchangePlan plan = exchange_plan(rearrangement(from, layout(after, 4)), {{{"x", 2, 500}, {1, 2, 3, 4, 5}}});
  const Cluster c = small_cluster();
  const Fabric fabric = fabric_of(c, 4);
  const PlayedExchange played = play_exchange(messages(plan), fabric, c.exchange_rates());
  const std::vector<LinkTraffic> traffic = link_traffic(plan, fabric.topology());
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    CHECK(played.carried[fabric.nic_out(rank)] == static_cast<double>(traffic[rank].sent[1]));
    CHECK(played.carried[fabric.nic_in(rank)] == static_cast<double>(traffic[rank].received[1]));
    CHECK(played.carried[fabric.nvlink_out(rank)] == static_cast<double>(traffic[rank].sent[0]));
  }
}

TEST_CASE("exchange: a plan's exchanges by themselves, there and back") {
  // Ranks 0 and 1 of one node send 6 MB and 2 MB to rank 2 of the other one; it sends nothing.
  const Layout from = layout(std::vector<std::uint32_t>{0, 1}, 4);
  StepPlan plan;
  plan.topology = uniform_topology(4, 2);
  const auto route = [&](std::uint32_t source) {
    return Route{source,
                 1,
                 exchange_plan(rearrangement(from, layout(std::vector<std::uint32_t>{2, 2}, 4)),
                               {{{"x", 1, 1'000'000}, {6, 2}}}),
                 {}};
  };
  plan.routes = {route(Route::home), route(0)};
  const Cluster c = with_latencies(small_cluster());
  for (const NetworkModel network : {NetworkModel::endpoints, NetworkModel::fluid}) {
    const std::vector<ExchangeTime> times = exchange_times(plan, c, network);
    REQUIRE(times.size() == 2);
    CHECK(times[0].backward == 0);  // raw inputs do not travel back
    CHECK(times[0].forward == times[1].forward);
    // 8 MB at 10 GB/s; the sender with one peer counts one, way back rank 2 has two.
    CHECK(times[1].forward == doctest::Approx(15e-6 + 800e-6).epsilon(0.003));
    CHECK(times[1].backward == doctest::Approx(18e-6 + 800e-6).epsilon(0.003));
  }
  Cluster shared = c;
  shared.links.nics_per_node = 1;
  CHECK(exchange_times(plan, shared)[1].backward == doctest::Approx(18e-6 + 800e-6).epsilon(0.003));
}

TEST_CASE("exchange: by itself it takes what it takes in a step that has no other") {
  test::check_property("predicted exchanges", [] {
    Cluster c = test::plain_cluster();
    c.gpus_per_node = 4;
    c.links = with_latencies(small_cluster()).links;
    c.links.nics_per_node = *rc::gen::element(0U, 1U, 2U);
    c.software.parameter_bytes = c.software.reduced_gradient_bytes = 0;  // collectives leave the links alone
    const Mllm model = test::any_graph_model();
    std::vector<Sample> samples(12);
    for (Sample& sample : samples) sample = test::any_ordered_sample(model);
    const test::Step step = test::any_step(model, test::lengths_of(model, samples));
    StepOptions options = test::any_options();
    const std::vector<PhaseShape> shapes = phase_shapes(model);
    const Parallelism parallelism;
    for (const auto schedule :
         {ExchangeSchedule::direct, ExchangeSchedule::hierarchical, ExchangeSchedule::automatic}) {
      options.schedule = schedule;
      const StepPlan plan = test::plan_of(step, options);
      const std::vector<ExchangeTime> times = exchange_times(plan, c);
      const StepWork work = step_work({model, shapes, c, parallelism}, plan, plan.ranks());
      for (std::size_t r = 0; r < plan.routes.size(); ++r) {
        if (plan.routes[r].is_input()) continue;
        const Exchanges alone{std::span(plan.routes).subspan(r, 1), plan.topology};
        const PlayedStep played = play_step(shapes, work, alone, c, parallelism);
        std::array<Nanoseconds, 2> first{}, last{};  // there, back
        first.fill(played.schedule.makespan);
        for (TaskId task = 0; task < played.tags.size(); ++task) {
          const TaskTag& tag = played.tags[task];
          if (tag.activity != Activity::exchange) continue;
          first[tag.number] = std::min(first[tag.number], played.schedule.start[task]);
          last[tag.number] = std::max(last[tag.number], played.schedule.finish[task]);
        }
        const auto seconds = [&](std::size_t way) {
          return last[way] == 0 ? 0 : 1e-9 * static_cast<double>(last[way] - first[way]);
        };
        constexpr double rounding = 4e-9;  // of a nanosecond a stage
        RC_ASSERT(std::abs(times[r].forward - seconds(0)) < rounding);
        RC_ASSERT(std::abs(times[r].backward - seconds(1)) < rounding);
        RC_ASSERT(std::abs(times[r].forward + times[r].backward - played.result.exchange_seconds) < rounding);
      }
    }
  });
}

TEST_CASE("exchange: between the endpoint model and the work that lies on a message's way; bytes are conserved") {
  test::check_property("sparse exchanges", [] {
    Cluster c = with_latencies(small_cluster());
    c.gpus_per_node = *rc::gen::inRange<std::uint32_t>(1, 5);
    c.links.nodes_per_leaf = *rc::gen::inRange<std::uint32_t>(1, 4);
    c.links.rails = *rc::gen::inRange<std::uint32_t>(1, c.gpus_per_node + 1);
    c.links.oversubscription = *rc::gen::element(1.0, 1.5, 4.0);
    const auto ranks = *rc::gen::inRange<std::uint32_t>(2, 20);
    const Fabric fabric = fabric_of(c, ranks);
    std::vector<Message> sparse;
    for (std::uint32_t pair = 0; pair < ranks * ranks; ++pair) {
      if (*rc::gen::inRange(0, 4) > 0) continue;
      sparse.push_back({pair / ranks, pair % ranks, *rc::gen::inRange<std::uint64_t>(0, 5'000'000)});
    }
    const double tolerance = *rc::gen::element(0.0, 0.0, 1.0 / 64);
    const PlayedExchange played = play_exchange(sparse, fabric, c.exchange_rates(), tolerance);

    const std::vector<double> endpoint = endpoint_seconds(sparse, fabric.topology(), c.exchange_rates());
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      RC_ASSERT(static_cast<double>(played.finish[rank]) >= endpoint[rank] * 1e9 - 1);
    }
    RC_ASSERT(played.makespan + 1 >= busiest_link_time(sparse, fabric));

    double sent = 0;
    std::vector<double> bytes(fabric.bandwidth().size(), 0);
    std::vector<double> count = bytes;
    for (const Message& m : sparse) {
      if (m.from == m.to) continue;
      sent += static_cast<double>(m.bytes);
      for (const LinkUse& use : fabric.path(m.from, m.to)) {
        bytes[use.link] += static_cast<double>(m.bytes);
        count[use.link] += m.bytes > 0 ? 1 : 0;
      }
    }
    RC_ASSERT(played.carried == bytes);
    double out = 0;
    double in = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      out += played.carried[fabric.nvlink_out(rank)] + played.carried[fabric.nic_out(rank)];
      in += played.carried[fabric.nvlink_in(rank)] + played.carried[fabric.nic_in(rank)];
    }
    RC_ASSERT(out == sent);
    RC_ASSERT(in == sent);

    // While a message flows, one of its links is full, or something on it has ended a short time ago: it cannot last
    // longer than all that. A flow ends up to a nanosecond late.
    const double linger = tolerance * static_cast<double>(busiest_link_time(sparse, fabric));
    const std::vector<Nanoseconds> setup = setup_times(sparse, fabric.topology(), c.exchange_rates());
    double latest = 0;
    for (std::size_t m = 0; m < sparse.size(); ++m) {
      if (sparse[m].from == sparse[m].to || sparse[m].bytes == 0) continue;
      double end = static_cast<double>(setup[m]);
      for (const LinkUse& use : fabric.path(sparse[m].from, sparse[m].to)) {
        end += bytes[use.link] / fabric.bandwidth()[use.link] * 1e9 + count[use.link] * (linger + 1);
      }
      latest = std::max(latest, end);
    }
    RC_ASSERT(static_cast<double>(played.makespan) <= latest + 1);
  });
}

TEST_CASE("exchange: messages that linger end nearly at the exact time with far fewer fillings") {
  const Cluster c = with_latencies(leaf_cluster(8, 2, 2));
  const Fabric fabric = fabric_of(c, 64);
  Random random(1);
  auto messages = all_pairs(64, 0, [](auto from, auto to) { return from != to; });
  for (Message& message : messages) message.bytes = 1 + random.below(200'000);
  const PlayedExchange exact = play_exchange(messages, fabric, c.exchange_rates(), 0);
  const PlayedExchange played = play_exchange(messages, fabric, c.exchange_rates());
  CHECK(static_cast<double>(played.makespan) == doctest::Approx(static_cast<double>(exact.makespan)).epsilon(1e-3));
  for (std::uint32_t rank = 0; rank < 64; ++rank) {
    CHECK(static_cast<double>(played.finish[rank]) ==
          doctest::Approx(static_cast<double>(exact.finish[rank])).epsilon(0.02));
  }
  CHECK(10 * played.fillings <= exact.fillings);
  CHECK(played.carried == exact.carried);
}
