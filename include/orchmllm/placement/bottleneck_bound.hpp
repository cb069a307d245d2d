// Lower bounds on the bottleneck: bytes that no node-wise placement can keep some node from sending or receiving.
//
//   mean    the fewest bytes between nodes / nodes
//   batch   what is elsewhere of a batch, wherever it is placed
//   node    a node that holds H bytes and processes batches of S bytes, K of them its own, sends H − K and receives
//           S − K, so max(H, S) − K for its best choice of batches, as if it could choose first
// The node's choice is a knapsack. Its Lagrangian relaxation (price p on S, 1 − p on H) costs O(candidates) a price;
// where that may be raised, a depth-first search under the relaxation finds the best choice, within a budget of visits.
// Candidates are the batches that a node holds part of and, of the others, as many small ones as it has ranks.
// Units: bytes, at most 2^60 together. Complexity: O(entries · log + ranks · nodes) and the visits. Guarantee: at most
// the optimum; integers alone. Source: Martello and Toth, Knapsack Problems, 1990, for relaxation and search.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "orchmllm/placement/topology.hpp"
#include "orchmllm/placement/traffic_matrix.hpp"

namespace orch::placement {

namespace detail {

struct Candidate {
  std::uint64_t bytes = 0;  ///< of the batch
  std::uint64_t kept = 0;   ///< of these, held by the node already
};

/// Smallest max(held, bytes chosen) − kept over all choices of `slots` candidates.
class NodeChoice {
 public:
  NodeChoice(std::vector<Candidate> candidates, std::uint32_t slots, std::uint64_t held)
      : candidates_(std::move(candidates)), slots_(slots), held_(held) {
    // The relaxed value is concave in the price, and rises while the choice is of more bytes than the node holds.
    std::uint32_t low = 0;
    std::uint32_t high = unit + 1;
    while (low < high) {
      const std::uint32_t price = (low + high) / 2;
      const auto [value, bytes] = choose(price);
      if (value > best_value_) {
        best_value_ = value;
        best_price_ = price;
      }
      if (bytes > held_) {
        low = price + 1;
      } else {
        high = price;
      }
    }
  }

  [[nodiscard]] std::uint64_t relaxed() const { return static_cast<std::uint64_t>((best_value_ + unit - 1) / unit); }

  /// The best choice's value; `enough` if that or less can be reached, `relaxed()` if the budget does not suffice.
  [[nodiscard]] std::uint64_t search(std::uint64_t enough, std::uint64_t& visits) {
    std::sort(candidates_.begin(), candidates_.end(), [&](const Candidate& a, const Candidate& b) {
      return std::pair(priced(a, best_price_), a.bytes) < std::pair(priced(b, best_price_), b.bytes);
    });
    sums_.assign(1, 0);
    for (const Candidate& candidate : candidates_) sums_.push_back(sums_.back() + priced(candidate, best_price_));
    enough_ = enough;
    found_ = ~std::uint64_t{0};
    descend(0, slots_, {}, 0, visits);
    if (found_ <= enough) return enough;
    return visits > 0 ? found_ : relaxed();
  }

 private:
  __extension__ using Wide = __int128;  // bytes times price
  static constexpr std::uint32_t unit = 64;

  [[nodiscard]] static Wide priced(const Candidate& candidate, std::uint32_t price) {
    return Wide{candidate.bytes} * price - Wide{candidate.kept} * unit;
  }

  /// The best choice at a price: its value, and its bytes.
  [[nodiscard]] std::pair<Wide, std::uint64_t> choose(std::uint32_t price) const {
    std::vector<std::pair<Wide, std::uint64_t>> values;
    for (const Candidate& candidate : candidates_) values.emplace_back(priced(candidate, price), candidate.bytes);
    const auto end = values.begin() + static_cast<std::ptrdiff_t>(slots_);
    if (end != values.end()) std::nth_element(values.begin(), end, values.end());
    return std::accumulate(
        values.begin(), end, std::pair(Wide{held_} * (unit - price), std::uint64_t{0}),
        [](const auto& a, const auto& b) { return std::pair(a.first + b.first, a.second + b.second); });
  }

  /// Chooses `left` more candidates from number `next` on.
  void descend(std::size_t next, std::uint32_t left, const Candidate& chosen, Wide value, std::uint64_t& visits) {
    if (left == 0) {
      found_ = std::min(found_, std::max(held_, chosen.bytes) - chosen.kept);
      return;
    }
    for (; next + left <= candidates_.size() && found_ > enough_ && visits > 0; ++next) {
      --visits;
      const Wide least = value + sums_[next + left] - sums_[next] + Wide{held_} * (unit - best_price_);
      if (least > Wide{found_ - 1} * unit) return;  // and every later candidate costs more
      const Candidate& candidate = candidates_[next];
      descend(next + 1, left - 1, {chosen.bytes + candidate.bytes, chosen.kept + candidate.kept},
              value + priced(candidate, best_price_), visits);
    }
  }

  std::vector<Candidate> candidates_;
  std::uint32_t slots_;
  std::uint64_t held_;
  Wide best_value_ = 0;
  std::uint32_t best_price_ = 0;
  std::vector<Wide> sums_;
  std::uint64_t enough_ = 0;
  std::uint64_t found_ = 0;
};

}  // namespace detail

/// `total` = fewest bytes between nodes. `visits` of the depth-first searches; 0: the relaxation alone.
[[nodiscard]] inline std::uint64_t bottleneck_bound(const TrafficMatrix& nodes, const Topology& topology,
                                                    std::uint64_t total, std::uint64_t visits) {
  std::uint64_t bound = ceil_div(total, topology.nodes());
  std::vector<std::uint64_t> batch_bytes(nodes.rows());
  std::vector<std::vector<detail::Candidate>> candidates(topology.nodes());
  std::vector<std::uint64_t> held(topology.nodes(), 0);
  for (std::uint32_t batch = 0; batch < nodes.rows(); ++batch) {
    batch_bytes[batch] = nodes.row_bytes(batch);
    std::uint64_t most = 0;
    for (const TrafficEntry& entry : nodes.row(batch)) {
      candidates[entry.place].push_back({batch_bytes[batch], entry.bytes});
      held[entry.place] += entry.bytes;
      most = std::max(most, entry.bytes);
    }
    bound = std::max(bound, batch_bytes[batch] - most);
  }
  std::vector<std::uint32_t> smallest_first(nodes.rows());
  std::iota(smallest_first.begin(), smallest_first.end(), 0U);
  std::stable_sort(smallest_first.begin(), smallest_first.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return batch_bytes[a] < batch_bytes[b]; });
  std::vector<detail::NodeChoice> choices;
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    std::uint32_t wanted = topology.size(node);
    for (auto batch = smallest_first.begin(); batch != smallest_first.end() && wanted > 0; ++batch) {
      if (nodes.bytes(*batch, node) > 0) continue;
      candidates[node].push_back({batch_bytes[*batch], 0});
      --wanted;
    }
    choices.emplace_back(std::move(candidates[node]), topology.size(node), held[node]);
    bound = std::max(bound, choices.back().relaxed());
  }
  // Nodes of the largest relaxed volume first: they are the likeliest to raise the bound while the budget lasts.
  std::stable_sort(choices.begin(), choices.end(),
                   [](const auto& a, const auto& b) { return a.relaxed() > b.relaxed(); });
  for (detail::NodeChoice& choice : choices) {
    if (visits == 0) break;
    bound = std::max(bound, choice.search(bound, visits));
  }
  return bound;
}

}  // namespace orch::placement
