// The links of a cluster's network and the ways over them: GPUs in nodes, nodes under leaf switches, leaves under a
// spine.
//
// Every rank has a port of its node's NVSwitch and a NIC, each with a link out and a link in; where a node has fewer
// NICs than ranks, several ranks' ways lead over one. NIC i of a node is attached to leaf switch (i mod rails) of the
// node's group of `nodes_per_leaf` nodes: rails = 1 puts all NICs of a node on one leaf, one rail a GPU is the
// rail-optimised fabric. A leaf has links up to the spine and down from it, each with the bandwidth of the attached
// NICs over the oversubscription; without oversubscription these can never be the narrowest links of any traffic, and
// are left out. The spine itself is non-blocking, and messages spread evenly over it. Units: bytes/s. Complexity:
// O(ranks) to build, O(1) for a path, O(n log n) for a ring of n.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orchmllm/placement/topology.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/fluid.hpp"

namespace orch::sim {

class Fabric {
 public:
  /// `rates` of the topology's ranks.
  Fabric(const Links& links, const LinkRates& rates, const Topology& topology);
  /// Ranks are GPUs.
  Fabric(const Links& links, const Topology& topology)
      : Fabric(links, {{links.nvlink_bandwidth, links.nic_bandwidth}, 0, 0, links.nics_per_node}, topology) {}

  [[nodiscard]] const Topology& topology() const { return topology_; }
  /// link → bytes/s.
  [[nodiscard]] std::span<const double> bandwidth() const { return bandwidth_; }
  [[nodiscard]] FluidNetwork network() const;

  [[nodiscard]] LinkId nvlink_out(std::uint32_t rank) const { return 4 * rank; }
  [[nodiscard]] LinkId nvlink_in(std::uint32_t rank) const { return 4 * rank + 1; }
  [[nodiscard]] LinkId nic_out(std::uint32_t rank) const { return 4 * port(rank) + 2; }
  [[nodiscard]] LinkId nic_in(std::uint32_t rank) const { return 4 * port(rank) + 3; }
  /// The leaf switch of the rank's NIC, counted from 0.
  [[nodiscard]] std::uint32_t leaf(std::uint32_t rank) const {
    return topology_.leaf(topology_.node_of[rank]) * topology_.rails + topology_.rail(rank);
  }
  [[nodiscard]] bool has_leaf_links() const { return bandwidth_.size() > 4 * std::size_t{topology_.ranks()}; }
  /// Only if there are leaf links.
  [[nodiscard]] LinkId leaf_up(std::uint32_t leaf) const { return 4 * topology_.ranks() + 2 * leaf; }
  [[nodiscard]] LinkId leaf_down(std::uint32_t leaf) const { return 4 * topology_.ranks() + 2 * leaf + 1; }

  /// Of a message to another rank.
  [[nodiscard]] std::vector<LinkUse> path(std::uint32_t from, std::uint32_t to) const;

  /// Of a ring all-gather or reduce-scatter of the flow's volume over at least two ranks, which stand node by node:
  /// every rank passes on (n − 1)/n of it by NVLink; between nodes the NICs of a node's ranks share that. By link.
  [[nodiscard]] std::vector<LinkUse> ring(std::span<const std::uint32_t> ranks) const;

 private:
  /// The first rank of those that share the rank's NIC.
  [[nodiscard]] std::uint32_t port(std::uint32_t rank) const { return port_rank(rank, topology_, ports_per_node_); }

  Topology topology_;
  std::uint32_t ports_per_node_ = 0;
  std::vector<double> bandwidth_;
};

}  // namespace orch::sim
