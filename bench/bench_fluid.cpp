// Exchanges played message by message as max-min fair flows: 8 GPUs a node, NVLink 360 GB/s, NIC 45 GB/s.
//
// Arguments: ranks; peers that each rank sends to (all others, or random ones); oversubscription of leaf switches of 32
// nodes and 8 rails, 1 = non-blocking. Messages of 1 byte to 2 MB, all different, so that nearly every one ends at an
// instant of its own. items_per_second = ended flows. Counters: fillings = of everything connected; late = end of the
// exchange over the exact one − 1, where that is quick to compute; over_endpoint = the same over the endpoint model's.
// EOF_FIGURES
//
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "orchmllm/base/random.hpp"
#include "orchmllm/exchange/link_traffic.hpp"
#include "orchmllm/sim/fluid_exchange.hpp"

namespace {

using namespace orch;
using namespace orch::sim;

Cluster cluster(double oversubscription) {
  Cluster c;
  c.gpus_per_node = 8;
  c.links.nvlink_bandwidth = 360e9;
  c.links.nic_bandwidth = 45e9;
  c.links.exchange_base_seconds = 15e-6;
  c.links.exchange_peer_seconds = 1.5e-6;
  c.links.nodes_per_leaf = 32;
  c.links.oversubscription = oversubscription;
  return c;
}

std::vector<Message> random_messages(std::uint32_t ranks, std::uint32_t peers) {
  std::vector<Message> result;
  Random random(1);
  for (std::uint32_t from = 0; from < ranks; ++from) {
    const std::vector<std::uint32_t> order = permutation(ranks, Random(1, from + 1));
    std::uint32_t left = peers;
    for (std::uint32_t k = 0; left > 0; ++k) {
      if (order[k] == from) continue;
      result.push_back({from, order[k], 1 + random.below(2'000'000)});
      --left;
    }
  }
  return result;
}

Nanoseconds endpoint_time(const std::vector<Message>& messages, const Fabric& fabric, const LinkRates& rates) {
  std::vector<LinkTraffic> traffic(fabric.topology().ranks());
  for (const Message& m : messages) {
    const auto link = static_cast<std::size_t>(link_between(m.from, m.to, fabric.topology()));
    traffic[m.from].sent[link] += m.bytes;
    traffic[m.to].received[link] += m.bytes;
    ++traffic[m.from].peers[link];
  }
  return nanoseconds(traffic, rates);
}

void exchange(benchmark::State& state) {
  const auto ranks = static_cast<std::uint32_t>(state.range(0));
  const auto peers = static_cast<std::uint32_t>(state.range(1));
  const Cluster c = cluster(static_cast<double>(state.range(2)));
  const Fabric fabric(c.links, c.topology(ranks));
  const std::vector<Message> messages = random_messages(ranks, peers);
  PlayedExchange played;
  for (auto _ : state) {
    played = play_exchange(messages, fabric, c.exchange_rates());
    benchmark::DoNotOptimize(played.makespan);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(messages.size()) * static_cast<std::int64_t>(state.iterations()));
  const auto over = [&](Nanoseconds reference) {
    return static_cast<double>(played.makespan) / static_cast<double>(reference) - 1;
  };
  state.counters["fillings"] = static_cast<double>(played.fillings);
  state.counters["over_endpoint"] = over(endpoint_time(messages, fabric, c.exchange_rates()));
  if (messages.size() < 10'000) {
    state.counters["late"] = over(play_exchange(messages, fabric, c.exchange_rates(), 0).makespan);
  }
}

}  // namespace

BENCHMARK(exchange)
    ->ArgNames({"ranks", "peers", "oversubscription"})
    ->Args({8, 7, 1})
    ->Args({64, 63, 1})
    ->Args({256, 255, 1})
    ->Args({256, 32, 1})
    ->Args({2560, 32, 1})
    ->Args({2560, 32, 4})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_MAIN();
