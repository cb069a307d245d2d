#include "orchmllm/sim/fluid_exchange.hpp"

#include <algorithm>
#include <array>

#include "orchmllm/exchange/link_traffic.hpp"

namespace orch::sim {

std::vector<Message> messages(const ExchangePlan& plan) {
  std::vector<Message> result;
  for (std::size_t t = 0; t < plan.transfers.size(); ++t) {
    result.push_back({plan.transfers[t].from, plan.transfers[t].to, plan.bytes(t)});
  }
  return result;
}

namespace {

bool travels(const Message& message) { return message.from != message.to && message.bytes > 0; }

/// Of the link that is busy longest, without latencies.
Nanoseconds busiest_link(std::span<const Message> messages, const Fabric& fabric) {
  std::vector<double> bytes(fabric.bandwidth().size(), 0);
  for (const Message& message : messages) {
    if (!travels(message)) continue;
    for (const LinkUse& use : fabric.path(message.from, message.to)) {
      bytes[use.link] += static_cast<double>(message.bytes) * use.weight;
    }
  }
  double longest = 0;
  for (std::size_t link = 0; link < bytes.size(); ++link) {
    longest = std::max(longest, bytes[link] / fabric.bandwidth()[link]);
  }
  return to_nanoseconds(longest);
}

}  // namespace

PlayedExchange play_exchange(std::span<const Message> messages, const Fabric& fabric, const LinkRates& rates,
                             double tolerance) {
  const Topology& topology = fabric.topology();
  const auto linger =
      static_cast<Nanoseconds>(tolerance * static_cast<double>(busiest_link(messages, fabric)));
  std::vector<std::array<std::uint32_t, 2>> peers(topology.ranks());  // that a rank sends to, by Link
  for (const Message& message : messages) {
    if (travels(message)) ++peers[message.from][static_cast<std::size_t>(link_between(message.from, message.to, topology))];
  }

  FluidNetwork network = fabric.network();
  std::vector<Message> of_flow;
  for (const Message& message : messages) {
    if (!travels(message)) continue;
    const auto link = static_cast<std::size_t>(link_between(message.from, message.to, topology));
    const std::uint32_t most_peers = std::max(peers[message.from][link], peers[message.to][link]);
    const Nanoseconds start = to_nanoseconds(rates.base_seconds + most_peers * rates.peer_seconds);
    const std::vector<LinkUse> path = fabric.path(message.from, message.to);
    network.start(start, {.volume = static_cast<double>(message.bytes), .path = path, .linger = linger});
    of_flow.push_back(message);
  }

  PlayedExchange played;
  played.finish.assign(topology.ranks(), 0);
  while (const auto next = network.next_event()) {
    for (const Completion& completion : network.advance(*next)) {
      const Message& message = of_flow[completion.flow];
      played.finish[message.from] = played.finish[message.to] = played.makespan = completion.time;
    }
  }
  for (LinkId link = 0; link < network.links(); ++link) played.carried.push_back(network.carried(link));
  played.fillings = network.fillings();
  return played;
}

}  // namespace orch::sim
