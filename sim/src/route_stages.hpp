// A route as the all-to-alls that it consists of: what a step's exchanges are built and priced from.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "orchmllm/exchange/hierarchical.hpp"
#include "orchmllm/exchange/link_traffic.hpp"
#include "orchmllm/orchestrate/step_plan.hpp"
#include "orchmllm/sim/fluid_exchange.hpp"

namespace orch::sim {

/// All-to-alls that run together.
using Stage = std::vector<const ExchangePlan*>;

/// Stage after stage.
[[nodiscard]] inline std::vector<Stage> route_stages(const Route& route) {
  if (!route.stages) return {{&route.exchange}};
  return {{&route.stages->inside, &route.stages->gather}, {&route.stages->between}, {&route.stages->scatter}};
}

/// The way of gradients.
[[nodiscard]] inline Route way_back(const Route& route) {
  if (route.stages) return {route.from, route.to, {}, inverse(*route.stages)};
  return {route.from, route.to, inverse(route.exchange), {}};
}

/// What a stage puts on every rank's links; ranks of a shared port wait for all of it.
[[nodiscard]] inline std::vector<LinkTraffic> stage_traffic(const Stage& stage, const Topology& topology,
                                                            const LinkRates& rates) {
  std::vector<LinkTraffic> traffic;
  for (const ExchangePlan* plan : stage) add_link_traffic(*plan, topology, traffic);
  share_ports(traffic, topology, rates);
  return traffic;
}

/// All messages that travel.
[[nodiscard]] inline std::vector<Message> stage_messages(const Stage& stage) {
  std::vector<Message> all;
  for (const ExchangePlan* plan : stage) {
    for (const Message& message : messages(*plan)) {
      if (travels(message)) all.push_back(message);
    }
  }
  return all;
}

}  // namespace orch::sim
