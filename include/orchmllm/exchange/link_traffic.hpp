// What an exchange puts on links, and how long that takes.
//
// A rank has a link into its node (NVLink) and one out of it (its network port); both carry both directions at once.
// Where a node has fewer ports than ranks, rank i of a node uses port i mod ports, and what its ranks put on it adds
// up. An exchange lasts as long as its busiest link: a base time, a time for each peer that the rank sends to, and the
// larger of what it sends and receives over the achieved bandwidth. Local copies are not counted: memory is a hundred
// times as fast as a network port. One transfer is one message, whatever fields it carries.
// Units: bytes, seconds. Complexity: O(transfers). Throws Overflow.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "orchmllm/exchange/exchange_plan.hpp"
#include "orchmllm/placement/topology.hpp"

namespace orch {

enum class Link : std::uint8_t { intra_node, inter_node };

/// Achieved rates of a rank's links, per direction.
struct LinkRates {
  std::array<double, 2> bandwidth{};  ///< bytes/s, by Link
  double base_seconds = 0;            ///< of any exchange
  double peer_seconds = 0;            ///< for each peer that a rank sends to
  std::uint32_t ports_per_node = 0;   ///< network ports that a node's ranks share; 0: every rank has its own
};

/// What one rank sends and receives in an exchange, by Link.
struct LinkTraffic {
  std::array<std::uint64_t, 2> sent{};      ///< bytes
  std::array<std::uint64_t, 2> received{};  ///< bytes
  std::array<std::uint32_t, 2> peers{};     ///< ranks sent to

  [[nodiscard]] double seconds(Link link, const LinkRates& rates) const {
    const auto l = static_cast<std::size_t>(link);
    const std::uint64_t bytes = std::max(sent[l], received[l]);
    if (bytes == 0) return 0;
    return rates.base_seconds + peers[l] * rates.peer_seconds + static_cast<double>(bytes) / rates.bandwidth[l];
  }
};

[[nodiscard]] inline Link link_between(std::uint32_t from, std::uint32_t to, const Topology& topology) {
  return topology.node_of[from] == topology.node_of[to] ? Link::intra_node : Link::inter_node;
}

/// rank → what it sends and receives; adds to `ranks`, which may hold an exchange that runs at the same time.
inline void add_link_traffic(const ExchangePlan& plan, const Topology& topology, std::vector<LinkTraffic>& ranks) {
  ranks.resize(plan.ranks());
  for (std::size_t t = 0; t < plan.transfers.size(); ++t) {
    const Transfer& transfer = plan.transfers[t];
    if (transfer.from == transfer.to) continue;
    const auto link = static_cast<std::size_t>(link_between(transfer.from, transfer.to, topology));
    const std::uint64_t bytes = plan.bytes(t);
    ranks[transfer.from].sent[link] = checked_add(ranks[transfer.from].sent[link], bytes);
    ranks[transfer.to].received[link] = checked_add(ranks[transfer.to].received[link], bytes);
    ++ranks[transfer.from].peers[link];
  }
}

[[nodiscard]] inline std::vector<LinkTraffic> link_traffic(const ExchangePlan& plan, const Topology& topology) {
  std::vector<LinkTraffic> ranks;
  add_link_traffic(plan, topology, ranks);
  return ranks;
}

/// The first of the ranks that share a rank's network port.
[[nodiscard]] inline std::uint32_t port_rank(std::uint32_t rank, const Topology& topology,
                                             std::uint32_t ports_per_node) {
  return ports_per_node == 0
             ? rank
             : topology.first_rank[topology.node_of[rank]] + topology.local_index(rank) % ports_per_node;
}

/// Every rank of a shared port waits for all that the port carries: its bytes of all ranks, the most peers of any.
inline void share_ports(std::vector<LinkTraffic>& ranks, const Topology& topology, const LinkRates& rates) {
  if (rates.ports_per_node == 0) return;
  constexpr auto outside = static_cast<std::size_t>(Link::inter_node);
  std::vector<LinkTraffic> ports(ranks.size());
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    LinkTraffic& port = ports[port_rank(rank, topology, rates.ports_per_node)];
    port.sent[outside] = checked_add(port.sent[outside], ranks[rank].sent[outside]);
    port.received[outside] = checked_add(port.received[outside], ranks[rank].received[outside]);
    port.peers[outside] = std::max(port.peers[outside], ranks[rank].peers[outside]);
  }
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const LinkTraffic& port = ports[port_rank(rank, topology, rates.ports_per_node)];
    ranks[rank].sent[outside] = port.sent[outside];
    ranks[rank].received[outside] = port.received[outside];
    ranks[rank].peers[outside] = port.peers[outside];
  }
}

/// The same in whole nanoseconds, term by term: what decisions are made by, so that no compiler's rounding matters.
[[nodiscard]] inline std::uint64_t nanoseconds(const LinkTraffic& rank, Link link, const LinkRates& rates) {
  const auto l = static_cast<std::size_t>(link);
  const std::uint64_t bytes = std::max(rank.sent[l], rank.received[l]);
  if (bytes == 0) return 0;
  const auto whole = [](double seconds) { return static_cast<std::uint64_t>(std::clamp(seconds * 1e9, 0.0, 1e18)); };
  const double carried = static_cast<double>(bytes) / rates.bandwidth[l];
  return whole(rates.base_seconds) + rank.peers[l] * whole(rates.peer_seconds) + whole(carried);
}
[[nodiscard]] inline std::uint64_t nanoseconds(std::span<const LinkTraffic> ranks, const LinkRates& rates) {
  std::uint64_t longest = 0;
  for (const LinkTraffic& rank : ranks) {
    longest =
        std::max({longest, nanoseconds(rank, Link::intra_node, rates), nanoseconds(rank, Link::inter_node, rates)});
  }
  return longest;
}

/// Until the last rank has all its bytes.
[[nodiscard]] inline double seconds(std::span<const LinkTraffic> ranks, const LinkRates& rates) {
  double longest = 0;
  for (const LinkTraffic& rank : ranks) {
    longest = std::max({longest, rank.seconds(Link::intra_node, rates), rank.seconds(Link::inter_node, rates)});
  }
  return longest;
}

/// What ranks wait for: their links' traffic, ports shared.
[[nodiscard]] inline std::vector<LinkTraffic> link_traffic(const ExchangePlan& plan, const Topology& topology,
                                                           const LinkRates& rates) {
  std::vector<LinkTraffic> ranks = link_traffic(plan, topology);
  share_ports(ranks, topology, rates);
  return ranks;
}

/// An exchange in sum, by the links that carry it.
struct Traffic {
  std::uint64_t local_bytes = 0;       ///< stay on their rank
  std::uint64_t intra_node_bytes = 0;  ///< to another rank of the same node
  std::uint64_t inter_node_bytes = 0;  ///< to another node; of them
  std::uint64_t cross_rail_bytes = 0;  ///< … to another rail
  std::uint64_t cross_leaf_bytes = 0;  ///< … to a node under another leaf switch
  std::uint64_t intra_node_messages = 0;
  std::uint64_t inter_node_messages = 0;

  [[nodiscard]] std::uint64_t moved_bytes() const { return intra_node_bytes + inter_node_bytes; }

  Traffic& operator+=(const Traffic& other) {
    local_bytes += other.local_bytes;
    intra_node_bytes += other.intra_node_bytes;
    inter_node_bytes += other.inter_node_bytes;
    cross_rail_bytes += other.cross_rail_bytes;
    cross_leaf_bytes += other.cross_leaf_bytes;
    intra_node_messages += other.intra_node_messages;
    inter_node_messages += other.inter_node_messages;
    return *this;
  }
};

[[nodiscard]] inline Traffic traffic(const ExchangePlan& plan, const Topology& topology) {
  Traffic sum;
  for (std::size_t t = 0; t < plan.transfers.size(); ++t) {
    const auto [from, to] = std::pair(plan.transfers[t].from, plan.transfers[t].to);
    const std::uint64_t bytes = plan.bytes(t);
    if (from == to) {
      sum.local_bytes += bytes;
    } else if (link_between(from, to, topology) == Link::intra_node) {
      sum.intra_node_bytes += bytes;
      ++sum.intra_node_messages;
    } else {
      sum.inter_node_bytes += bytes;
      ++sum.inter_node_messages;
      if (topology.rail(from) != topology.rail(to)) sum.cross_rail_bytes += bytes;
      if (topology.leaf(topology.node_of[from]) != topology.leaf(topology.node_of[to])) sum.cross_leaf_bytes += bytes;
    }
  }
  return sum;
}

}  // namespace orch
