// A cluster: GPUs, links, memory and software figures that the simulator computes with, each from a cluster file.
//
// Units are in the names. Rates are achieved, not nominal, except `peak_flops`, which defines MFU.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orchmllm/exchange/link_traffic.hpp"
#include "orchmllm/placement/topology.hpp"

namespace orch::sim {

/// Points (x, y), x ascending; between points linear in log2(x), outside constant.
struct Curve {
  std::vector<double> x;
  std::vector<double> y;
  [[nodiscard]] double at(double x_value) const;
};

/// Achieved attention rate of one kernel by length. Causal kernels count half of the square.
struct AttentionRate {
  std::uint64_t head_dim = 0;
  bool causal = false;
  Curve forward_flops;   ///< length → FLOP/s
  Curve backward_flops;  ///< length → FLOP/s
};

struct Cluster {
  std::string name;
  std::uint32_t gpus_per_node = 0;

  // GPU
  double peak_flops = 0;  ///< dense 16-bit, the vendor's figure
  double memory_bytes = 0;
  double memory_bandwidth = 0;  ///< achieved bytes/s of memory-bound kernels
  Curve gemm_flops;             ///< smaller matrix dimension → FLOP/s
  std::vector<AttentionRate> attention;
  std::vector<std::uint64_t> attention_head_dims;  ///< that kernels exist for; others are padded up
  double launch_seconds = 0;                       ///< host time per kernel
  double kernels_per_layer = 0;

  // links, bytes/s per GPU and direction
  double nvlink_bandwidth = 0;
  double nic_bandwidth = 0;
  double collective_base_seconds = 0;
  double nvlink_hop_seconds = 0;
  double network_hop_seconds = 0;
  double exchange_base_seconds = 0;  ///< one all-to-all
  double exchange_peer_seconds = 0;  ///< per peer of a rank
  [[nodiscard]] LinkRates exchange_rates() const {
    return {{nvlink_bandwidth, nic_bandwidth}, exchange_base_seconds, exchange_peer_seconds};
  }

  // leaf switches between NICs and spine
  std::uint32_t nodes_per_leaf = 0;  ///< nodes whose NICs share leaf switches; 0: all of them
  std::uint32_t rails = 0;           ///< leaf switches that a node's NICs are spread over; 0: one for each
  double oversubscription = 1;       ///< NIC bandwidth of a leaf switch over its bandwidth to the spine
  [[nodiscard]] Topology topology(std::uint32_t ranks) const {
    return uniform_topology(ranks, gpus_per_node, {.rails = rails, .nodes_per_leaf = nodes_per_leaf});
  }

  // training software
  std::uint32_t layers_per_unit = 1;    ///< layers that FSDP gathers together
  double parameter_bytes = 2;           ///< gathered
  double gradient_bytes = 4;            ///< reduced
  double state_bytes = 16;              ///< sharded: master weights, gradients, optimizer
  double optimizer_traffic_bytes = 30;  ///< read and written per parameter and step
  std::uint64_t loss_chunk_tokens = 0;
  double reserved_bytes = 0;  ///< context, communication buffers
  double fragmentation = 0;   ///< share of the rest that the allocator loses
};

/// `name` is a path or the name of a shipped file. Throws InvalidInput as FILE:LINE.
[[nodiscard]] Cluster load_cluster(const std::string& name);

}  // namespace orch::sim
