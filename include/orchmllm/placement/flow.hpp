// Node-wise placement: which node processes which balanced batch, by exact flow and by repair.
//
// Balanced batches are interchangeable, so any permutation of them keeps the balance; the bytes between nodes depend on
// it.
//   total       fewest bytes between nodes: a transportation problem, solved exactly (transport.hpp)
//   bottleneck  smallest largest volume that any node sends or receives: from the total optimum, swaps of batches
//   between
//               the worst node and others, each the one that leaves the smallest maximum, until none helps
// Inside a node, batches go to the ranks that hold most of their bytes, exactly.
// Complexity: total as transport.hpp; bottleneck O(ranks · node size) a swap, at most `max_swaps`.
// Guarantee: total is optimal. Bottleneck carries a bound: no placement is below total / nodes, nor below what a node
// must send even if it keeps the batches that hold most of its bytes, nor below what is left of the largest batch
// anywhere. Source: OrchMLLM (arXiv 2503.23830), node-wise all-to-all, which solves an integer program instead.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "orchmllm/placement/topology.hpp"
#include "orchmllm/placement/traffic_matrix.hpp"
#include "orchmllm/placement/transport.hpp"

namespace orch {

struct Placement {
  std::vector<std::uint32_t> rank_of;  ///< batch → rank, a permutation
  std::uint64_t total_bytes = 0;       ///< between nodes
  std::uint64_t bottleneck_bytes = 0;  ///< largest volume that one node sends or receives
  std::uint64_t intra_node_bytes = 0;  ///< between ranks of one node
  std::uint64_t total_bound = 0;       ///< no placement has fewer bytes between nodes
  std::uint64_t bottleneck_bound = 0;  ///< no placement has a smaller bottleneck
  bool proved_optimal = false;         ///< for the objective that was asked for
  std::string_view solver;
};

namespace placement {

/// Bytes that every node sends to and receives from others, given batch → node.
struct NodeVolumes {
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> received;

  [[nodiscard]] std::uint64_t worst(std::uint32_t node) const { return std::max(sent[node], received[node]); }
  [[nodiscard]] std::uint64_t worst() const {
    std::uint64_t most = 0;
    for (std::uint32_t node = 0; node < sent.size(); ++node) most = std::max(most, worst(node));
    return most;
  }
};

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

[[nodiscard]] inline std::uint64_t total_volume(const NodeVolumes& volumes) {
  std::uint64_t sum = 0;
  for (const std::uint64_t bytes : volumes.sent) sum = checked_add(sum, bytes);
  return sum;
}

/// Bytes that no placement can keep any node from sending or receiving. `total` = fewest bytes between nodes.
[[nodiscard]] inline std::uint64_t bottleneck_bound(const TrafficMatrix& nodes, const Topology& topology,
                                                    std::uint64_t total) {
  std::uint64_t bound = ceil_div(total, topology.nodes());
  std::vector<std::vector<std::uint64_t>> held(topology.nodes());  // node → bytes it holds of each batch
  for (std::uint32_t batch = 0; batch < nodes.rows(); ++batch) {
    std::uint64_t most = 0;
    for (const TrafficEntry& entry : nodes.row(batch)) {
      held[entry.place].push_back(entry.bytes);
      most = std::max(most, entry.bytes);
    }
    bound = std::max(bound, nodes.row_bytes(batch) - most);  // what this batch receives wherever it is placed
  }
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    std::sort(held[node].begin(), held[node].end(), std::greater<>());
    std::uint64_t leaves = 0;  // all but the batches that the node can keep
    for (std::size_t i = topology.size(node); i < held[node].size(); ++i) leaves += held[node][i];
    bound = std::max(bound, leaves);
  }
  return bound;
}

namespace detail {

/// Swaps that lower the worst node, until none does.
inline void repair_bottleneck(const TrafficMatrix& nodes, std::vector<std::uint32_t>& node_of, std::uint64_t bound,
                              std::uint32_t max_swaps) {
  NodeVolumes volumes = node_volumes(nodes, node_of);
  std::vector<std::uint64_t> batch_bytes(nodes.rows());
  std::vector<std::vector<std::uint32_t>> members(nodes.places);
  for (std::uint32_t batch = 0; batch < nodes.rows(); ++batch) {
    batch_bytes[batch] = nodes.row_bytes(batch);
    members[node_of[batch]].push_back(batch);
  }
  // Volumes of one node after giving `out` away for `in`: what it kept of `out` it now sends, what it holds of `in` it
  // keeps.
  const auto after = [&](std::uint32_t node, std::uint32_t out, std::uint32_t in) {
    const std::uint64_t lost = nodes.bytes(out, node);
    const std::uint64_t kept = nodes.bytes(in, node);
    return std::pair(volumes.sent[node] + lost - kept,
                     volumes.received[node] + lost + batch_bytes[in] - kept - batch_bytes[out]);
  };
  for (std::uint32_t swap = 0; swap < max_swaps; ++swap) {
    std::uint32_t worst = 0;
    for (std::uint32_t node = 1; node < nodes.places; ++node) {
      if (volumes.worst(node) > volumes.worst(worst)) worst = node;
    }
    std::uint64_t best = volumes.worst(worst);
    if (best <= bound) return;
    std::pair<std::uint32_t, std::uint32_t> chosen{};  // batch of the worst node, batch of another
    bool found = false;
    for (const std::uint32_t out : members[worst]) {
      for (std::uint32_t in = 0; in < nodes.rows(); ++in) {
        if (node_of[in] == worst) continue;
        const auto [sent, received] = after(worst, out, in);
        if (std::max(sent, received) >= best) continue;
        const auto [other_sent, other_received] = after(node_of[in], in, out);
        const std::uint64_t maximum = std::max({sent, received, other_sent, other_received});
        if (maximum >= best) continue;
        best = maximum;
        chosen = {out, in};
        found = true;
      }
    }
    if (!found) return;
    const auto [out, in] = chosen;
    const std::uint32_t other = node_of[in];
    std::tie(volumes.sent[worst], volumes.received[worst]) = after(worst, out, in);
    std::tie(volumes.sent[other], volumes.received[other]) = after(other, in, out);
    std::replace(members[worst].begin(), members[worst].end(), out, in);
    std::replace(members[other].begin(), members[other].end(), in, out);
    std::swap(node_of[out], node_of[in]);
  }
}

/// batch → rank inside the nodes that were chosen, keeping most bytes on their rank.
[[nodiscard]] inline std::vector<std::uint32_t> ranks_in_nodes(const TrafficMatrix& by_rank, const Topology& topology,
                                                               std::span<const std::uint32_t> node_of) {
  std::vector<std::vector<std::uint32_t>> members(topology.nodes());
  for (std::uint32_t batch = 0; batch < by_rank.rows(); ++batch) members[node_of[batch]].push_back(batch);
  std::vector<std::uint32_t> rank_of(by_rank.rows());
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    TrafficMatrix inside;
    inside.places = topology.size(node);
    for (const std::uint32_t batch : members[node]) {
      for (const TrafficEntry& entry : by_rank.row(batch)) {
        if (topology.node_of[entry.place] == node) {
          inside.entries.push_back({entry.place - topology.first_rank[node], entry.bytes});
        }
      }
      inside.first.push_back(inside.entries.size());
    }
    const std::vector<std::uint32_t> one_each(topology.size(node), 1);
    const std::vector<std::uint32_t> place_of = transport(inside, one_each);
    for (std::size_t i = 0; i < members[node].size(); ++i)
      rank_of[members[node][i]] = topology.first_rank[node] + place_of[i];
  }
  return rank_of;
}

inline void require_square(const TrafficMatrix& by_rank, const Topology& topology) {
  if (by_rank.rows() != topology.ranks() || by_rank.places != topology.ranks()) {
    throw InvalidInput("placement of " + std::to_string(by_rank.rows()) + " batches from " +
                       std::to_string(by_rank.places) + " ranks onto " + std::to_string(topology.ranks()) +
                       " ranks: the numbers must be equal");
  }
}

}  // namespace detail

/// Result with all volumes recomputed from batch → node. `total_bound` must be proven.
[[nodiscard]] inline Placement finish(const TrafficMatrix& by_rank, const TrafficMatrix& nodes,
                                      const Topology& topology, std::span<const std::uint32_t> node_of,
                                      std::uint64_t total_bound, std::string_view solver) {
  const NodeVolumes volumes = node_volumes(nodes, node_of);
  Placement result;
  result.rank_of = detail::ranks_in_nodes(by_rank, topology, node_of);
  result.total_bytes = total_volume(volumes);
  result.bottleneck_bytes = volumes.worst();
  for (std::uint32_t batch = 0; batch < nodes.rows(); ++batch) {
    result.intra_node_bytes += nodes.bytes(batch, node_of[batch]) - by_rank.bytes(batch, result.rank_of[batch]);
  }
  result.total_bound = total_bound;
  result.bottleneck_bound = bottleneck_bound(nodes, topology, total_bound);
  result.solver = solver;
  return result;
}

/// Fewest bytes between nodes; optimal.
[[nodiscard]] inline Placement place_total(const TrafficMatrix& by_rank, const Topology& topology) {
  detail::require_square(by_rank, topology);
  const TrafficMatrix nodes = by_node(by_rank, topology);
  std::vector<std::uint32_t> capacity(topology.nodes());
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) capacity[node] = topology.size(node);
  const std::vector<std::uint32_t> node_of = transport(nodes, capacity);
  const std::uint64_t total = total_volume(node_volumes(nodes, node_of));
  Placement result = finish(by_rank, nodes, topology, node_of, total, "flow-total");
  result.proved_optimal = true;
  return result;
}

/// Smallest worst node, by repair of the total optimum; its bound says how far it can be from the best.
[[nodiscard]] inline Placement place_bottleneck(const TrafficMatrix& by_rank, const Topology& topology,
                                                std::uint32_t max_swaps = 100000) {
  detail::require_square(by_rank, topology);
  const TrafficMatrix nodes = by_node(by_rank, topology);
  std::vector<std::uint32_t> capacity(topology.nodes());
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) capacity[node] = topology.size(node);
  std::vector<std::uint32_t> node_of = transport(nodes, capacity);
  const std::uint64_t total = total_volume(node_volumes(nodes, node_of));
  detail::repair_bottleneck(nodes, node_of, bottleneck_bound(nodes, topology, total), max_swaps);
  Placement result = finish(by_rank, nodes, topology, node_of, total, "flow-repair");
  result.proved_optimal = result.bottleneck_bytes == result.bottleneck_bound;
  return result;
}

}  // namespace placement

}  // namespace orch
