// One exchange, played message by message over a fabric.
//
// A message starts when both of its ends have set up theirs: base time + per-peer time · the larger number of peers of
// the two, on the kind of link that carries it (exchange/link_traffic.hpp). From then on it is a fluid flow. So no rank
// is ready before the endpoint model says so; it is later where messages meet at a busy rank or leaf switch. Messages
// to oneself are not counted.
// With a tolerance, messages linger (fluid.hpp) for that part of the busiest link's time: about 1 / tolerance fillings
// of everything instead of one a message. Ends then differ from the exact ones (tolerance 0) by a small part of it,
// later by up to a tolerance where a hundred messages and more share a NIC. Units: bytes, nanoseconds. Complexity:
// O(fillings · messages).
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

/// Whether it puts anything on a link.
[[nodiscard]] inline bool travels(const Message& message) { return message.from != message.to && message.bytes > 0; }

/// One message for each transfer, whatever fields it carries.
[[nodiscard]] std::vector<Message> messages(const ExchangePlan& plan);

/// message → from the exchange's begin until it starts.
[[nodiscard]] std::vector<Nanoseconds> setup_times(std::span<const Message> messages, const Topology& topology,
                                                   const LinkRates& rates);

/// How long the messages keep the busiest link busy, at least.
[[nodiscard]] Nanoseconds busiest_link_time(std::span<const Message> messages, const Fabric& fabric);

/// How long a message lingers, so that ends stay within a tolerance of the busiest link's time.
[[nodiscard]] Nanoseconds linger_time(std::span<const Message> messages, const Fabric& fabric, double tolerance);

struct PlayedExchange {
  std::vector<Nanoseconds> finish;  ///< rank → end of the last message that it sends or receives; 0 without any
  Nanoseconds makespan = 0;
  std::vector<double> carried;  ///< link → bytes
  std::uint64_t fillings = 0;   ///< how often rates were recomputed
};

inline constexpr double exchange_tolerance = 1.0 / 64;

/// At most one message for each pair of ranks.
[[nodiscard]] PlayedExchange play_exchange(std::span<const Message> messages, const Fabric& fabric,
                                           const LinkRates& rates, double tolerance = exchange_tolerance);

}  // namespace orch::sim
