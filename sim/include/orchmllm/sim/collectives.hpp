// Durations of collectives: latency of the algorithm's steps, and bytes over the bandwidth of the slower level.
//
// Ring all-gather and reduce-scatter of `bytes` over n GPUs on m nodes: base + (m − 1) network hops + (n − m) NVLink
// hops + bytes · (n − 1)/n / bandwidth. Inside one node the bandwidth is NVLink's; between nodes all rails of a node
// carry the ring together, so it is the smaller of NVLink's and (GPUs of the group per node · NIC). A ring all-reduce
// is both; a whole node's may run in its switches; between nodes a double tree needs 2 log2(m) hops instead of 2 (m −
// 1). Bandwidths depend on the size of a message, bytes / n for a ring. Source of the latency form: NCCL's tuning
// model. Units: bytes (the whole, unsharded size), seconds. Complexity: O(1).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/parallelism.hpp"

namespace orch::sim {

/// Achieved bytes/s of one GPU's link for messages of `bytes`.
[[nodiscard]] inline double link_bandwidth(Link link, double bytes, const Links& links) {
  const bool inside = link == Link::intra_node;
  const Curve& share = inside ? links.nvlink_size_share : links.nic_size_share;
  return (inside ? links.nvlink_bandwidth : links.nic_bandwidth) * (share.x.empty() ? 1 : share.at(bytes));
}

/// NICs that a group's GPUs of one node have together.
[[nodiscard]] inline double node_nics(Group group, const Links& links) {
  return links.nics_per_node == 0 ? group.per_node : std::min(group.per_node, links.nics_per_node);
}

/// Bytes/s of a ring through all members of a group, for messages of `bytes`.
[[nodiscard]] inline double ring_bandwidth(Group group, double bytes, const Links& links) {
  const double inside = link_bandwidth(Link::intra_node, bytes, links);
  if (group.nodes() == 1) return inside;
  const double between = node_nics(group, links) * link_bandwidth(Link::inter_node, bytes, links);
  return group.per_node > 1 ? std::min(inside, between) : between;
}

/// What a ring takes however little it carries.
[[nodiscard]] inline double ring_latency(Group group, const Links& links) {
  const double nodes = group.nodes();
  return links.collective_base_seconds + (nodes - 1) * links.network_hop_seconds +
         (group.members - nodes) * links.nvlink_hop_seconds;
}

/// All-gather or reduce-scatter.
[[nodiscard]] inline double ring_seconds(double bytes, Group group, const Links& links) {
  if (group.members <= 1 || bytes <= 0) return 0;
  const double message = bytes / group.members;
  return ring_latency(group, links) + message * (group.members - 1) / ring_bandwidth(group, message, links);
}

[[nodiscard]] inline double all_reduce_seconds(double bytes, Group group, const Links& links) {
  if (group.members <= 1 || bytes <= 0) return 0;
  const double members = group.members;
  const double nodes = group.nodes();
  const double message = bytes / members;
  const double ring = 2 * ring_seconds(bytes, group, links) - links.collective_base_seconds;
  if (nodes == 1) {
    if (links.nvlink_all_reduce_bandwidth <= 0) return ring;
    const double in_switch = links.collective_base_seconds + 2 * links.nvlink_hop_seconds +
                             2 * message * (members - 1) / links.nvlink_all_reduce_bandwidth;
    return std::min(ring, in_switch);
  }
  const double tree_latency = links.collective_base_seconds +
                              2 * std::ceil(std::log2(nodes)) * links.network_hop_seconds +
                              2 * (group.per_node - 1) * links.nvlink_hop_seconds;
  const double tree = tree_latency + 2 * message * (members - 1) / ring_bandwidth(group, message, links);
  return std::min(ring, tree);
}

/// All-to-all in which every member sends `bytes` in all, an equal part to every member, itself included.
[[nodiscard]] inline double all_to_all_seconds(double bytes, Group group, const Links& links) {
  if (group.members <= 1 || bytes <= 0) return 0;
  const double message = bytes / group.members;
  const double inside = message * (group.per_node - 1) / link_bandwidth(Link::intra_node, message, links);
  const double between = message * (group.members - group.per_node) * group.per_node / node_nics(group, links) /
                         link_bandwidth(Link::inter_node, message, links);
  return links.exchange_base_seconds + (group.members - 1) * links.exchange_peer_seconds + std::max(inside, between);
}

/// One message from GPU to GPU.
[[nodiscard]] inline double send_seconds(double bytes, Link link, const Links& links) {
  return links.exchange_base_seconds + bytes / link_bandwidth(link, bytes, links);
}

}  // namespace orch::sim
