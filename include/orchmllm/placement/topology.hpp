// Where ranks live: nodes of one or more ranks, numbered node by node.
//
// A node's ranks are consecutive; nodes may differ in size. Rank r of a node sits on rail r mod rails: network ports of
// equal number are connected by one switch, so messages between nodes that stay on a rail take the shortest way.
// Complexity: O(ranks) to build, O(1) to ask.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/base/error.hpp"

namespace orch {

struct Topology {
  std::vector<std::uint32_t> first_rank;  ///< node → its first rank; one more entry than nodes
  std::vector<std::uint32_t> node_of;     ///< rank → node

  [[nodiscard]] std::uint32_t nodes() const { return static_cast<std::uint32_t>(first_rank.size() - 1); }
  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(node_of.size()); }
  [[nodiscard]] std::uint32_t size(std::uint32_t node) const { return first_rank[node + 1] - first_rank[node]; }
};

/// Nodes of the given sizes. Throws InvalidInput for an empty node.
[[nodiscard]] inline Topology topology(std::span<const std::uint32_t> node_sizes) {
  Topology result{{0}, {}};
  for (std::size_t node = 0; node < node_sizes.size(); ++node) {
    if (node_sizes[node] == 0) throw InvalidInput("node " + std::to_string(node) + " has no ranks");
    result.first_rank.push_back(result.first_rank.back() + node_sizes[node]);
    result.node_of.insert(result.node_of.end(), node_sizes[node], static_cast<std::uint32_t>(node));
  }
  return result;
}

/// Nodes of `ranks_per_node` ranks, the last one with what is left.
[[nodiscard]] inline Topology uniform_topology(std::uint32_t ranks, std::uint32_t ranks_per_node) {
  if (ranks == 0 || ranks_per_node == 0) throw InvalidInput("a topology needs ranks, and at least one rank a node");
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t left = ranks; left > 0; left -= sizes.back()) sizes.push_back(std::min(left, ranks_per_node));
  return topology(sizes);
}

}  // namespace orch
