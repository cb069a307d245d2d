#include "orchmllm/sim/fluid_exchange.hpp"

#include <algorithm>
#include <array>

namespace orch::sim {

std::vector<Message> messages(const ExchangePlan& plan) {
  std::vector<Message> result;
  for (std::size_t t = 0; t < plan.transfers.size(); ++t) {
    result.push_back({plan.transfers[t].from, plan.transfers[t].to, plan.bytes(t)});
  }
  return result;
}

std::vector<Nanoseconds> setup_times(std::span<const Message> messages, const Topology& topology,
                                     const LinkRates& rates) {
  const auto kind = [&](const Message& message) {
    return static_cast<std::size_t>(link_between(message.from, message.to, topology));
  };
  std::vector<std::array<std::uint32_t, 2>> peers(topology.ranks());  // rank → ranks that it sends to, by Link
  for (const Message& message : messages) {
    if (travels(message)) ++peers[message.from][kind(message)];
  }
  std::vector<Nanoseconds> setup;
  for (const Message& message : messages) {
    const std::uint32_t most_peers = std::max(peers[message.from][kind(message)], peers[message.to][kind(message)]);
    setup.push_back(to_nanoseconds(rates.base_seconds + most_peers * rates.peer_seconds));
  }
  return setup;
}

Nanoseconds busiest_link_time(std::span<const Message> messages, const Fabric& fabric) {
  std::vector<double> bytes(fabric.bandwidth().size(), 0);
  for (const Message& message : messages) {
    if (!travels(message)) continue;
    for (const LinkUse& use : fabric.path(message.from, message.to)) {
      bytes[use.link] += static_cast<double>(message.bytes);
    }
  }
  double longest = 0;
  for (std::size_t link = 0; link < bytes.size(); ++link) {
    longest = std::max(longest, bytes[link] / fabric.bandwidth()[link]);
  }
  return to_nanoseconds(longest);
}

Nanoseconds linger_time(std::span<const Message> messages, const Fabric& fabric, double tolerance) {
  return static_cast<Nanoseconds>(tolerance * static_cast<double>(busiest_link_time(messages, fabric)));
}

PlayedExchange play_exchange(std::span<const Message> messages, const Fabric& fabric, const LinkRates& rates,
                             double tolerance) {
  const std::vector<Nanoseconds> setup = setup_times(messages, fabric.topology(), rates);
  const Nanoseconds linger = linger_time(messages, fabric, tolerance);
  FluidNetwork network = fabric.network();
  std::vector<Message> of_flow;
  for (std::size_t m = 0; m < messages.size(); ++m) {
    if (!travels(messages[m])) continue;
    const std::vector<LinkUse> path = fabric.path(messages[m].from, messages[m].to);
    (void)network.start(setup[m], {.volume = static_cast<double>(messages[m].bytes), .path = path, .linger = linger});
    of_flow.push_back(messages[m]);
  }

  PlayedExchange played;
  played.finish.assign(fabric.topology().ranks(), 0);
  while (const auto next = network.next_event()) {
    for (const Completion& end : network.advance(*next)) {
      played.finish[of_flow[end.flow].from] = end.time;
      played.finish[of_flow[end.flow].to] = end.time;
      played.makespan = end.time;
    }
  }
  for (LinkId link = 0; link < network.links(); ++link) played.carried.push_back(network.carried(link));
  played.fillings = network.fillings();
  return played;
}

}  // namespace orch::sim
