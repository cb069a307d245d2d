// Lowers the bottleneck of a node-wise placement by swaps of batches: a tabu search.
//
// Every step takes the node that sends or receives most, and of all swaps of its batches with others' the one after
// which the larger of the two nodes is smallest, even if that is more than before; the two batches then stay for some
// steps, so that the search leaves a local optimum. The best placement on the way counts.
// Units: bytes. Complexity: O(ranks · node size) a step; stops at `bound`, after `patience` steps without a better
// placement, or when `swaps` have been looked at. Guarantee: not worse than the start. Ties by batch number, limits in
// swaps and not in seconds: deterministic. Source: Glover, Tabu Search, 1989.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "orchmllm/placement/node_volumes.hpp"
#include "orchmllm/placement/traffic_matrix.hpp"

namespace orch::placement {

namespace detail {

class BottleneckSearch {
 public:
  BottleneckSearch(const TrafficMatrix& nodes, std::vector<std::uint32_t> node_of)
      : nodes_(nodes),
        node_of_(std::move(node_of)),
        volumes_(node_volumes(nodes, node_of_)),
        members_(nodes.places),
        bytes_(nodes.rows()),
        kept_(nodes.rows()),
        held_by_worst_(nodes.rows()),
        held_by_node_(nodes.places, 0),
        stays_until_(nodes.rows(), 0) {
    for (std::uint32_t batch = 0; batch < nodes.rows(); ++batch) {
      bytes_[batch] = nodes.row_bytes(batch);
      kept_[batch] = nodes.bytes(batch, node_of_[batch]);
      members_[node_of_[batch]].push_back(batch);
    }
  }

  /// batch → node.
  [[nodiscard]] std::vector<std::uint32_t> run(std::uint64_t bound, std::uint64_t patience, std::uint64_t swaps) {
    std::vector<std::uint32_t> best_node_of = node_of_;
    best_ = volumes_.bottleneck();
    std::uint64_t last_better = 0;
    for (step_ = 1; best_ > bound && step_ - last_better <= patience; ++step_) {
      const std::uint32_t worst = volumes_.worst_node();
      const std::uint64_t looked_at = std::uint64_t{nodes_.rows()} * members_[worst].size();
      if (looked_at > swaps) break;
      swaps -= looked_at;
      const Swap swap = best_swap(worst);
      if (swap.larger == none) continue;  // all that may help must stay a while
      apply(swap);
      const std::uint64_t bottleneck = volumes_.bottleneck();
      if (bottleneck < best_) {
        best_ = bottleneck;
        best_node_of = node_of_;
        last_better = step_;
      }
    }
    return best_node_of;
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  struct Swap {
    std::uint64_t larger = none;  ///< volume of the two nodes after the swap
    std::uint64_t smaller = none;
    std::uint32_t out = 0;  ///< batch of the worst node
    std::uint32_t in = 0;   ///< batch that takes its place
  };

  /// Volumes of a node that gives `out` away for `in`, of which it holds `held`: what it kept of `out` it now sends.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> after(std::uint32_t out, std::uint32_t in,
                                                              std::uint64_t held) const {
    const std::uint32_t node = node_of_[out];
    return {volumes_.sent[node] + kept_[out] - held,
            volumes_.received[node] + kept_[out] + bytes_[in] - held - bytes_[out]};
  }

  [[nodiscard]] Swap best_swap(std::uint32_t worst) {
    for (std::uint32_t batch = 0; batch < nodes_.rows(); ++batch) held_by_worst_[batch] = nodes_.bytes(batch, worst);
    Swap best;
    for (const std::uint32_t out : members_[worst]) {
      for (const TrafficEntry& entry : nodes_.row(out)) held_by_node_[entry.place] = entry.bytes;
      for (std::uint32_t in = 0; in < nodes_.rows(); ++in) {
        const auto [sent, received] = after(out, in, held_by_worst_[in]);
        const std::uint64_t here = std::max(sent, received);
        if (here > best.larger || node_of_[in] == worst) continue;
        const auto [other_sent, other_received] = after(in, out, held_by_node_[node_of_[in]]);
        const std::uint64_t there = std::max(other_sent, other_received);
        const auto [smaller, larger] = std::minmax(here, there);
        if (std::tie(larger, smaller) >= std::tie(best.larger, best.smaller)) continue;
        const bool stays = std::max(stays_until_[out], stays_until_[in]) > step_;
        if (stays && larger >= best_) continue;
        best = {larger, smaller, out, in};
      }
      for (const TrafficEntry& entry : nodes_.row(out)) held_by_node_[entry.place] = 0;
    }
    return best;
  }

  void apply(const Swap& swap) {
    const auto [out, in, worst, other] = std::tuple(swap.out, swap.in, node_of_[swap.out], node_of_[swap.in]);
    const std::uint64_t held_here = nodes_.bytes(in, worst);
    const std::uint64_t held_there = nodes_.bytes(out, other);
    const auto here = after(out, in, held_here);
    const auto there = after(in, out, held_there);
    std::tie(volumes_.sent[worst], volumes_.received[worst]) = here;
    std::tie(volumes_.sent[other], volumes_.received[other]) = there;
    std::replace(members_[worst].begin(), members_[worst].end(), out, in);
    std::replace(members_[other].begin(), members_[other].end(), in, out);
    std::swap(node_of_[out], node_of_[in]);
    kept_[in] = held_here;
    kept_[out] = held_there;
    // Times to stay that vary keep the search from going in circles.
    stays_until_[out] = stays_until_[in] = step_ + 3 + step_ % 7;
  }

  const TrafficMatrix& nodes_;
  std::vector<std::uint32_t> node_of_;
  NodeVolumes volumes_;
  std::vector<std::vector<std::uint32_t>> members_;
  std::vector<std::uint64_t> bytes_;          ///< of a batch
  std::vector<std::uint64_t> kept_;           ///< of these, held by its node
  std::vector<std::uint64_t> held_by_worst_;  ///< batch → bytes of it that the worst node holds
  std::vector<std::uint64_t> held_by_node_;   ///< node → bytes it holds of the batch in hand
  std::vector<std::uint64_t> stays_until_;    ///< batch → first step that may move it again
  std::uint64_t best_ = 0;
  std::uint64_t step_ = 0;
};

}  // namespace detail

/// batch → node, whose bottleneck is at most that of `node_of`.
[[nodiscard]] inline std::vector<std::uint32_t> lower_bottleneck(const TrafficMatrix& nodes,
                                                                 std::vector<std::uint32_t> node_of,
                                                                 std::uint64_t bound, std::uint64_t patience,
                                                                 std::uint64_t swaps) {
  return detail::BottleneckSearch(nodes, std::move(node_of)).run(bound, patience, swaps);
}

}  // namespace orch::placement
