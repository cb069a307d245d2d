// Where ranks live: nodes of one or more ranks, numbered node by node, their network ports and switches.
//
// A node's ranks are consecutive; nodes may differ in size. Rails: network port number r of every node is connected to
// the same switch, so messages between nodes that stay on a rail take the shortest way. A rank uses the port of its
// number in the node, modulo the number of rails. Leaf groups: consecutive nodes share a leaf switch.
// Complexity: O(ranks) to build, O(1) to ask. Throws InvalidInput. Ranks, nodes and rails that are asked about exist.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/base/error.hpp"

namespace orch {

struct TopologyOptions {
  std::uint32_t rails = 0;           ///< network ports a node; 0: as many as the largest node has ranks
  std::uint32_t nodes_per_leaf = 0;  ///< consecutive nodes that share a leaf switch; 0: all of them
};

struct Topology {
  std::vector<std::uint32_t> first_rank;  ///< node → its first rank; one more entry than nodes
  std::vector<std::uint32_t> node_of;     ///< rank → node
  std::uint32_t rails = 1;
  std::uint32_t nodes_per_leaf = 1;

  [[nodiscard]] std::uint32_t nodes() const { return static_cast<std::uint32_t>(first_rank.size() - 1); }
  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(node_of.size()); }
  [[nodiscard]] std::uint32_t size(std::uint32_t node) const { return first_rank[node + 1] - first_rank[node]; }
  [[nodiscard]] std::uint32_t leaves() const { return leaf(nodes() - 1) + 1; }

  [[nodiscard]] std::uint32_t local_index(std::uint32_t rank) const { return rank - first_rank[node_of[rank]]; }
  [[nodiscard]] std::uint32_t rail(std::uint32_t rank) const { return local_index(rank) % rails; }
  [[nodiscard]] std::uint32_t leaf(std::uint32_t node) const { return node / nodes_per_leaf; }
  /// The rank of `node` that serves `rail`; in a node of fewer ranks than rails, a rank serves several.
  [[nodiscard]] std::uint32_t gateway(std::uint32_t node, std::uint32_t rail) const {
    return first_rank[node] + rail % size(node);
  }
};

/// Nodes of the given sizes, each at least one rank.
[[nodiscard]] inline Topology topology(std::span<const std::uint32_t> node_sizes, const TopologyOptions& options = {}) {
  if (node_sizes.empty()) throw InvalidInput("a topology needs at least one node");
  constexpr std::uint32_t most_ranks = std::numeric_limits<std::uint32_t>::max();
  Topology result;
  result.first_rank.push_back(0);
  for (std::uint32_t node = 0; node < node_sizes.size(); ++node) {
    const std::uint32_t first = result.first_rank.back();
    if (node_sizes[node] == 0) throw InvalidInput("node " + std::to_string(node) + " has no ranks");
    if (node_sizes[node] > most_ranks - first) {
      throw InvalidInput("nodes 0 to " + std::to_string(node) + " have more than " + std::to_string(most_ranks) +
                         " ranks together");
    }
    result.first_rank.push_back(first + node_sizes[node]);
    result.node_of.insert(result.node_of.end(), node_sizes[node], node);
  }
  result.rails = options.rails > 0 ? options.rails : *std::max_element(node_sizes.begin(), node_sizes.end());
  result.nodes_per_leaf = options.nodes_per_leaf > 0 ? options.nodes_per_leaf : result.nodes();
  return result;
}

/// Nodes of `ranks_per_node` ranks, the last one with what is left.
[[nodiscard]] inline Topology uniform_topology(std::uint32_t ranks, std::uint32_t ranks_per_node,
                                               const TopologyOptions& options = {}) {
  if (ranks == 0 || ranks_per_node == 0) throw InvalidInput("a topology needs ranks, and at least one rank a node");
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t left = ranks; left > 0; left -= sizes.back()) sizes.push_back(std::min(left, ranks_per_node));
  return topology(sizes, options);
}

}  // namespace orch
