// Node-first schedule of an exchange: few large messages between nodes instead of many small ones.
//
//   inside    what stays in its node goes straight to its rank
//   gather    what leaves the node goes, inside the node, to the rank on the receiver's rail
//   between   one message per pair of nodes and rail
//   scatter   inside the receiving node, from the rail's rank to the receiver
//
// Each stage is an exchange plan of its own over the same items, its payload empty for items that it does not concern;
// inside and gather run at the same time, then between, then scatter. Executed one after the other they bring every
// item to the slot where the direct exchange brings it. A rank then talks to the ranks of its node and, for each rail
// that it serves, to at most one rank of every other node; the price is staging memory at the rails' ranks and two more
// trips inside the nodes. Complexity: O(n + ranks). Source: rail-aligned aggregation as in NCCL's PXN (NVIDIA/nccl,
// "P2P aggregation").
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "orchmllm/exchange/exchange_plan.hpp"
#include "orchmllm/exchange/link_traffic.hpp"
#include "orchmllm/placement/topology.hpp"

namespace orch {

struct HierarchicalExchange {
  ExchangePlan inside;
  ExchangePlan gather;
  ExchangePlan between;
  ExchangePlan scatter;

  [[nodiscard]] std::array<const ExchangePlan*, 4> stages() const { return {&inside, &gather, &between, &scatter}; }
};

namespace detail {

/// Payload of a stage: that of the direct exchange for items that take part, nothing for the others.
template <class TakesPart>
[[nodiscard]] std::vector<Payload> stage_payload(const ExchangePlan& direct, const std::vector<std::uint32_t>& slot,
                                                 TakesPart&& takes_part) {
  std::vector<Payload> payload;
  for (const Payload& whole : direct.payload) {
    payload.push_back({whole.field, std::vector<std::uint32_t>(whole.length.size(), 0)});
    for (std::uint32_t i = 0; i < whole.length.size(); ++i) {
      if (takes_part(i)) payload.back().length[slot[i]] = whole.length[i];
    }
  }
  return payload;
}

}  // namespace detail

/// The direct exchange `plan` by way of the rails' ranks.
[[nodiscard]] inline HierarchicalExchange hierarchical(const ExchangePlan& plan, const Topology& topology) {
  const Rearrangement& direct = plan.moves;
  const std::size_t n = direct.to.size();
  const std::vector<std::uint32_t> sender = detail::rank_at(direct.first_before);
  const std::vector<std::uint32_t> receiver = detail::rank_at(direct.first_after);
  // Items are numbered by their final slots: inside a rail's rank they then lie in the order of their receivers.
  std::vector<std::uint32_t> source = inverse(direct).to;  // final slot → slot before
  std::vector<std::uint32_t> gathered_at(n);
  std::vector<std::uint32_t> arrives_at(n);
  std::vector<char> leaves(n);  // slot before → goes to another node
  for (std::uint32_t last = 0; last < n; ++last) {
    const std::uint32_t from = sender[source[last]];
    const std::uint32_t to = receiver[last];
    leaves[source[last]] = link_between(from, to, topology) == Link::inter_node ? 1 : 0;
    const bool leaving = leaves[source[last]] != 0;
    gathered_at[last] = leaving ? topology.gateway(topology.node_of[from], topology.rail(to)) : to;
    arrives_at[last] = leaving ? topology.gateway(topology.node_of[to], topology.rail(to)) : to;
  }
  const Layout gathered = layout(gathered_at, plan.ranks());
  const Layout arrived = layout(arrives_at, plan.ranks());

  std::vector<std::uint32_t> at_home(n);
  std::vector<std::uint32_t> at_gather(n);
  std::vector<std::uint32_t> at_arrival(n);
  for (std::uint32_t slot = 0; slot < n; ++slot) {
    at_home[slot] = slot;
    at_gather[slot] = gathered.slot_of[direct.to[slot]];
    at_arrival[slot] = arrived.slot_of[direct.to[slot]];
  }
  const auto inside_node = [&](std::uint32_t slot) { return leaves[slot] == 0; };
  const auto between_nodes = [&](std::uint32_t slot) { return leaves[slot] != 0; };
  HierarchicalExchange stages;
  stages.inside = exchange_plan(direct, detail::stage_payload(plan, at_home, inside_node));
  stages.gather = exchange_plan({direct.first_before, gathered.first, at_gather},
                                detail::stage_payload(plan, at_home, between_nodes));
  stages.between =
      exchange_plan(rearrangement(gathered, arrived), detail::stage_payload(plan, at_gather, between_nodes));
  stages.scatter = exchange_plan({arrived.first, direct.first_after, arrived.item_at},
                                 detail::stage_payload(plan, at_arrival, between_nodes));
  // Items that a stage does not concern still lie in the buffers: only a stage without transfers may be left out.
  for (ExchangePlan* stage : {&stages.inside, &stages.gather, &stages.between, &stages.scatter}) {
    stage->identity = stage->transfers.empty();
  }
  return stages;
}

/// The way back: scatter, between, gather, each in the other direction.
[[nodiscard]] inline HierarchicalExchange inverse(const HierarchicalExchange& there) {
  return {inverse(there.inside), inverse(there.scatter), inverse(there.between), inverse(there.gather)};
}

[[nodiscard]] inline Traffic traffic(const HierarchicalExchange& exchange, const Topology& topology) {
  Traffic sum;
  for (const ExchangePlan* stage : exchange.stages()) {
    Traffic part = traffic(*stage, topology);
    part.local_bytes = stage == &exchange.inside ? part.local_bytes : 0;  // copies into and out of staging buffers
    sum += part;
  }
  return sum;
}

/// What every rank puts on its links, stage by stage: inside and gather together, between, scatter.
[[nodiscard]] inline std::array<std::vector<LinkTraffic>, 3> link_traffic(const HierarchicalExchange& exchange,
                                                                          const Topology& topology) {
  std::array<std::vector<LinkTraffic>, 3> stages;
  add_link_traffic(exchange.inside, topology, stages[0]);
  add_link_traffic(exchange.gather, topology, stages[0]);
  add_link_traffic(exchange.between, topology, stages[1]);
  add_link_traffic(exchange.scatter, topology, stages[2]);
  return stages;
}

/// What ranks wait for, ports shared.
[[nodiscard]] inline std::array<std::vector<LinkTraffic>, 3> link_traffic(const HierarchicalExchange& exchange,
                                                                          const Topology& topology,
                                                                          const LinkRates& rates) {
  std::array<std::vector<LinkTraffic>, 3> stages = link_traffic(exchange, topology);
  for (std::vector<LinkTraffic>& stage : stages) share_ports(stage, topology, rates);
  return stages;
}

/// Stage after stage, in whole nanoseconds.
[[nodiscard]] inline std::uint64_t nanoseconds(const std::array<std::vector<LinkTraffic>, 3>& stages,
                                               const LinkRates& rates) {
  std::uint64_t sum = 0;
  for (const std::vector<LinkTraffic>& stage : stages) sum += nanoseconds(stage, rates);
  return sum;
}

/// Stage after stage.
[[nodiscard]] inline double seconds(const std::array<std::vector<LinkTraffic>, 3>& stages, const LinkRates& rates) {
  double sum = 0;
  for (const std::vector<LinkTraffic>& stage : stages) sum += seconds(stage, rates);
  return sum;
}

/// rank → bytes that it holds for others between gather and scatter: gathered, and arrived to be scattered.
[[nodiscard]] inline std::vector<std::uint64_t> staging_bytes(const HierarchicalExchange& exchange) {
  const ExchangePlan& between = exchange.between;
  std::vector<std::uint64_t> bytes(between.ranks(), 0);
  for (std::size_t f = 0; f < between.fields(); ++f) {
    const std::uint64_t element = between.payload[f].field.element_bytes;
    for (std::uint32_t rank = 0; rank < between.ranks(); ++rank) {
      bytes[rank] = checked_add(bytes[rank], checked_mul(element, checked_add(between.send_elements[f][rank],
                                                                              between.receive_elements[f][rank])));
    }
  }
  return bytes;
}

}  // namespace orch
