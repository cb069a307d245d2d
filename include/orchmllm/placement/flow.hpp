// Node-wise placement by flow: which node processes which balanced batch, so that few bytes pass between nodes.
//
// Balanced batches are interchangeable, so any permutation of them keeps the balance; the bytes between nodes depend on
// it.
//   total       fewest bytes between nodes: a transportation problem (transport.hpp)
//   bottleneck  smallest largest volume that any node sends or receives: swaps from there (bottleneck_search.hpp)
// Inside a node, batches go to the ranks that hold most of their bytes, exactly.
// Units: bytes. Complexity: as transport.hpp and bottleneck_search.hpp, within limits of work that are counted, not
// timed: the placement is the same on every machine. Guarantee: total is optimal unless the limit cuts it short;
// bottleneck is at most that of the placement it starts from. Both come with lower bounds (bottleneck_bound.hpp).
// Source: OrchMLLM (arXiv 2503.23830), node-wise all-to-all, which solves an integer program instead.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orchmllm/placement/bottleneck_bound.hpp"
#include "orchmllm/placement/bottleneck_search.hpp"
#include "orchmllm/placement/node_volumes.hpp"
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
  std::string_view reason;  ///< why this solver, and how it ended
};

/// Limits of work, in counted steps.
struct PlacementEffort {
  std::uint64_t flow = placement::unlimited;  ///< places and entries that the flow looks at
  std::uint64_t visits = 1U << 21U;           ///< of the searches for each node's best choice, a bound
  std::uint64_t swaps = 1U << 27U;            ///< that the bottleneck search looks at
  std::uint64_t patience = 1000;              ///< its steps without a better placement
};

namespace placement {

namespace detail {

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

/// Result with all volumes recomputed from batch → node. The bounds must be proven.
[[nodiscard]] inline Placement finish(const TrafficMatrix& by_rank, const TrafficMatrix& nodes,
                                      const Topology& topology, std::span<const std::uint32_t> node_of,
                                      std::uint64_t total_bound, std::uint64_t bottleneck_bound) {
  const NodeVolumes volumes = node_volumes(nodes, node_of);
  Placement result;
  result.rank_of = detail::ranks_in_nodes(by_rank, topology, node_of);
  result.total_bytes = volumes.total();
  result.bottleneck_bytes = volumes.bottleneck();
  for (std::uint32_t batch = 0; batch < nodes.rows(); ++batch) {
    result.intra_node_bytes += nodes.bytes(batch, node_of[batch]) - by_rank.bytes(batch, result.rank_of[batch]);
  }
  result.total_bound = total_bound;
  result.bottleneck_bound = bottleneck_bound;
  return result;
}

namespace detail {

/// batch → node with few bytes between nodes, and the fewest that any has.
struct NodeFlow {
  std::vector<std::uint32_t> node_of;
  std::uint64_t total_bytes = 0;
  std::uint64_t total_bound = 0;

  [[nodiscard]] bool optimal() const { return total_bytes == total_bound; }
};

[[nodiscard]] inline NodeFlow node_flow(const TrafficMatrix& nodes, const Topology& topology, std::uint64_t most_work) {
  std::vector<std::uint32_t> sizes(topology.nodes());
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) sizes[node] = topology.size(node);
  Transported transported = transport_within(most_work, nodes, sizes);
  std::uint64_t bytes = 0;
  for (const TrafficEntry& entry : nodes.entries) bytes += entry.bytes;
  // The bound on the bytes in place may exceed all bytes while the flow is cut short.
  return {std::move(transported.place_of), bytes - transported.in_place, bytes - std::min(bytes, transported.bound)};
}

}  // namespace detail

/// Fewest bytes between nodes.
[[nodiscard]] inline Placement place_total(const TrafficMatrix& by_rank, const Topology& topology,
                                           const PlacementEffort& effort = {}) {
  detail::require_square(by_rank, topology);
  const TrafficMatrix nodes = by_node(by_rank, topology);
  const detail::NodeFlow flow = detail::node_flow(nodes, topology, effort.flow);
  const std::uint64_t least = bottleneck_bound(nodes, topology, flow.total_bound, 0);
  Placement result = finish(by_rank, nodes, topology, flow.node_of, flow.total_bound, least);
  result.proved_optimal = flow.optimal();
  result.solver = "flow";
  result.reason = flow.optimal()
                      ? "the total is a transportation problem, which the flow solves exactly"
                      : "the flow's share of the time was used up; the last batches went where there was room";
  return result;
}

/// Smallest worst node, by swaps from the total optimum; its bound says how far it can be from the best.
[[nodiscard]] inline Placement place_bottleneck(const TrafficMatrix& by_rank, const Topology& topology,
                                                const PlacementEffort& effort = {}) {
  detail::require_square(by_rank, topology);
  const TrafficMatrix nodes = by_node(by_rank, topology);
  const detail::NodeFlow flow = detail::node_flow(nodes, topology, effort.flow);
  const std::uint64_t bound = bottleneck_bound(nodes, topology, flow.total_bound, effort.visits);
  const std::vector<std::uint32_t> node_of =
      lower_bottleneck(nodes, flow.node_of, bound, effort.patience, effort.swaps);
  Placement result = finish(by_rank, nodes, topology, node_of, flow.total_bound, bound);
  result.proved_optimal = result.bottleneck_bytes == bound;
  result.solver = "flow+swaps";
  result.reason = result.proved_optimal ? "swaps from the smallest total reached the lower bound"
                                        : "swaps from the smallest total found nothing better, or used up their share "
                                          "of the time";
  return result;
}

}  // namespace placement

}  // namespace orch
