// One exchange, played message by message over a fabric.
//
// A message starts when both of its ends have set up theirs: base time + per-peer time · the larger number of peers of
// the two, on the kind of link that carries it (exchange/link_traffic.hpp). From then on it is a fluid flow. So no rank
// is ready before the endpoint model says, and the slowest later where messages meet on a busy receiver or a leaf
// switch. Local copies are not counted.
// With a tolerance, the share of a message that has ended may lie idle for that part of the busiest link's time: the
// rates are recomputed a few times 1 / tolerance times instead of once a message. 0 is exact.
// Units: bytes, nanoseconds. Complexity: O(fillings · messages).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orchmllm/exchange/exchange_plan.hpp"
#include "orchmllm/sim/engine.hpp"
#include "orchmllm/sim/fabric.hpp"

namespace orch::sim {

struct Message {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint64_t bytes = 0;
};

struct PlayedExchange {
  std::vector<Nanoseconds> finish;  ///< rank → end of the last message that it sends or receives; 0 without any
  Nanoseconds makespan = 0;
  std::vector<double> carried;      ///< link → bytes
  std::uint64_t fillings = 0;       ///< recomputations of rates
};

inline constexpr double exchange_tolerance = 1.0 / 256;

/// At most one message for each pair of ranks.
[[nodiscard]] PlayedExchange play_exchange(std::span<const Message> messages, const Fabric& fabric,
                                           const LinkRates& rates, double tolerance = exchange_tolerance);

/// One message for each transfer, whatever fields it carries.
[[nodiscard]] std::vector<Message> messages(const ExchangePlan& plan);

}  // namespace orch::sim
