// Durations of collectives: ring over `ranks` GPUs, node by node, bandwidth of the slower level plus hop latencies.
//
// Ring all-gather and reduce-scatter of `bytes` over n ranks on m nodes: base + (m − 1) network hops + (n − m) NVLink
// hops + bytes · (n − 1)/n / bandwidth. Inside one node the bandwidth is NVLink's; between nodes all rails of a node
// carry the ring together, so it is the smaller of NVLink's and (ranks per node · NIC). An all-reduce is both.
// Source of the latency form: NCCL's tuning model. Units: bytes, seconds.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "orchmllm/base/cost.hpp"
#include "orchmllm/sim/cluster.hpp"

namespace orch::sim {

/// All-gather or reduce-scatter of `bytes` (the whole, unsharded size) over consecutive ranks.
[[nodiscard]] inline double ring_seconds(double bytes, std::uint32_t ranks, const Cluster& cluster) {
  if (ranks <= 1) return 0;
  const auto nodes = static_cast<double>(ceil_div(ranks, cluster.gpus_per_node));
  const double per_node = std::min<double>(ranks, cluster.gpus_per_node);
  const double bandwidth =
      nodes > 1 ? std::min(cluster.nvlink_bandwidth, per_node * cluster.nic_bandwidth) : cluster.nvlink_bandwidth;
  const double latency = cluster.collective_base_seconds + (nodes - 1) * cluster.network_hop_seconds +
                         (ranks - nodes) * cluster.nvlink_hop_seconds;
  return latency + bytes * (ranks - 1) / ranks / bandwidth;
}

/// All-reduce of `bytes` over one rank of each of `replicas` groups, each on another node: every ring step crosses.
[[nodiscard]] inline double replica_all_reduce_seconds(double bytes, std::uint32_t replicas, const Cluster& cluster) {
  if (replicas <= 1) return 0;
  const double steps = 2.0 * (replicas - 1);
  return cluster.collective_base_seconds + steps * cluster.network_hop_seconds +
         2 * bytes * (replicas - 1) / replicas / cluster.nic_bandwidth;
}

}  // namespace orch::sim
