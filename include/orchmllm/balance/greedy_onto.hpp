// Longest-processing-time-first onto bins that already carry something: samples by descending cost, each to the least
// loaded bin, optionally only to bins that have room for its tokens.
//
// Where some of the work is fixed (split samples, long samples that set the pace of a micro-batch), the rest is
// balanced around it. A bin that should end up smaller than the others gets a head start: a larger initial load.
// Units: loads and costs in the cost model's unit, rooms in tokens. Ties go to the lower bin, equal costs in input
// order: the result is unique. Complexity: O(n log b) for b bins. Guarantee: largest final load ≤ max(initial loads,
// mean of all final loads + (1 − 1/b) · largest cost) without rooms (Graham's argument for list scheduling). With
// rooms, the bin is the least loaded one that has room as long as the search for it is short (LoadTree), and some bin
// that has room otherwise.
//
//   const std::vector<orch::Cost> costs{5, 4, 3}, loads{6, 0};
//   orch::balance::greedy_onto(costs, loads);  // {1, 1, 0}: final loads 9 and 9
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/sort.hpp"

namespace orch::balance {

namespace detail {

/// Bins with a load and a room, in a complete binary tree whose inner nodes know the least load and the most room
/// below them.
class LoadTree {
 public:
  LoadTree(std::span<const Cost> loads, std::span<const std::uint64_t> rooms) {
    while (leaves_ < loads.size()) leaves_ *= 2;
    // Leaves beyond the last bin are never chosen: a real bin of the same load has the lower index.
    nodes_.assign(2 * leaves_, {std::numeric_limits<Cost>::max(), 0});
    for (std::size_t bin = 0; bin < loads.size(); ++bin) {
      nodes_[leaves_ + bin] = {loads[bin], rooms.empty() ? std::numeric_limits<std::uint64_t>::max() : rooms[bin]};
    }
    for (std::size_t node = leaves_; node-- > 1;) combine(node);
  }

  [[nodiscard]] Cost load(std::uint32_t bin) const { return nodes_[leaves_ + bin].load; }

  /// The least loaded bin whose room is at least `tokens`, ties to the lower bin; nothing where no bin has it. The
  /// search ends after `search_limit` nodes with the best bin seen so far: plans stay fast where loads
  /// and rooms have nothing to do with each other.
  [[nodiscard]] std::optional<std::uint32_t> least_loaded(std::uint64_t tokens) const {
    if (nodes_[1].room < tokens) return std::nullopt;
    std::size_t node = 1;
    while (node < leaves_) {
      const Node& left = nodes_[2 * node];
      const Node& right = nodes_[2 * node + 1];
      const std::size_t next = right.load < left.load ? 2 * node + 1 : 2 * node;
      if (nodes_[next].room < tokens) return search(tokens);
      node = next;
    }
    return static_cast<std::uint32_t>(node - leaves_);
  }

  void add(std::uint32_t bin, Cost cost, std::uint64_t tokens) {
    std::size_t node = leaves_ + bin;
    nodes_[node].load = checked_add(nodes_[node].load, cost);
    nodes_[node].room -= tokens;
    for (node /= 2; node > 0; node /= 2) combine(node);
  }

 private:
  struct Node {
    Cost load;
    std::uint64_t room;
  };

  void combine(std::size_t node) {
    const Node& left = nodes_[2 * node];
    const Node& right = nodes_[2 * node + 1];
    nodes_[node] = {std::min(left.load, right.load), std::max(left.room, right.room)};
  }

  static constexpr std::size_t search_limit = 512;

  /// Depth first, less loaded child first; a subtree is left out where it has no room or cannot beat the best so far. A
  /// subtree that has room has a bin with room, so the first descent ends in one.
  [[nodiscard]] std::uint32_t search(std::uint64_t tokens) const {
    std::size_t best = 0;  // 0 = none yet; leaves are ordered by (load, index)
    std::size_t visited = 0;
    const auto visit = [&](const auto& self, std::size_t node) -> void {
      if (nodes_[node].room < tokens || visited == search_limit) return;
      if (best != 0 && nodes_[node].load > nodes_[best].load) return;
      ++visited;
      if (node >= leaves_) {
        if (best == 0 || nodes_[node].load < nodes_[best].load || node < best) best = node;
        return;
      }
      if (best != 0 && nodes_[node].load == nodes_[best].load && first_leaf(node) > best) return;
      const bool right_first = nodes_[2 * node + 1].load < nodes_[2 * node].load;
      self(self, 2 * node + (right_first ? 1 : 0));
      self(self, 2 * node + (right_first ? 0 : 1));
    };
    visit(visit, 1);
    return static_cast<std::uint32_t>(best - leaves_);
  }

  [[nodiscard]] std::size_t first_leaf(std::size_t node) const {
    while (node < leaves_) node *= 2;
    return node;
  }

  std::size_t leaves_ = 1;
  std::vector<Node> nodes_;
};

}  // namespace detail

/// Bin of every sample. Throws InvalidInput where there is no bin.
[[nodiscard]] inline std::vector<std::uint32_t> greedy_onto(std::span<const Cost> costs, std::span<const Cost> loads) {
  if (loads.empty()) throw InvalidInput("ranks = 0: at least one rank is needed");
  detail::LoadTree tree(loads, {});
  std::vector<std::uint32_t> bin_of(costs.size());
  for (const std::uint32_t sample : descending_order(costs)) {
    const std::uint32_t bin = *tree.least_loaded(0);
    tree.add(bin, costs[sample], 0);
    bin_of[sample] = bin;
  }
  return bin_of;
}

/// The same for samples in the given order, under a room in tokens for every bin; nothing where a sample finds none.
/// Requires at least one bin where there is a sample.
[[nodiscard]] inline std::optional<std::vector<std::uint32_t>> greedy_onto(std::span<const Cost> costs,
                                                                           std::span<const std::uint64_t> tokens,
                                                                           std::span<const std::uint32_t> order,
                                                                           std::span<const Cost> loads,
                                                                           std::span<const std::uint64_t> rooms) {
  detail::LoadTree tree(loads, rooms);
  std::vector<std::uint32_t> bin_of(costs.size());
  for (const std::uint32_t sample : order) {
    const auto bin = tree.least_loaded(tokens[sample]);
    if (!bin) return std::nullopt;
    tree.add(*bin, costs[sample], tokens[sample]);
    bin_of[sample] = *bin;
  }
  return bin_of;
}

}  // namespace orch::balance
