// What a node-wise placement costs: the bytes that every node sends to and receives from others.
//
// Rows of the traffic matrix are batches, places are nodes. Units: bytes. Complexity: O(entries). Throws Overflow.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "orchmllm/base/cost.hpp"
#include "orchmllm/placement/traffic_matrix.hpp"

namespace orch::placement {

struct NodeVolumes {
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> received;

  [[nodiscard]] std::uint64_t volume(std::uint32_t node) const { return std::max(sent[node], received[node]); }
  [[nodiscard]] std::uint32_t worst_node() const {
    std::uint32_t worst = 0;
    for (std::uint32_t node = 1; node < sent.size(); ++node) {
      if (volume(node) > volume(worst)) worst = node;
    }
    return worst;
  }
  [[nodiscard]] std::uint64_t bottleneck() const { return volume(worst_node()); }
  [[nodiscard]] std::uint64_t total() const { return checked_sum(sent); }
};

/// `node_of[batch]` is the node that processes the batch.
[[nodiscard]] inline NodeVolumes node_volumes(const TrafficMatrix& nodes, std::span<const std::uint32_t> node_of) {
  NodeVolumes volumes{std::vector<std::uint64_t>(nodes.places, 0), std::vector<std::uint64_t>(nodes.places, 0)};
  for (std::uint32_t batch = 0; batch < nodes.rows(); ++batch) {
    for (const TrafficEntry& entry : nodes.row(batch)) {
      if (entry.place == node_of[batch]) continue;
      volumes.sent[entry.place] = checked_add(volumes.sent[entry.place], entry.bytes);
      volumes.received[node_of[batch]] = checked_add(volumes.received[node_of[batch]], entry.bytes);
    }
  }
  return volumes;
}

}  // namespace orch::placement
