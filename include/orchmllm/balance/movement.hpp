// Movement-aware balancing: every rank's cost under (1 + tolerance) of the lower bound, with as few bytes moved as can
// be.
//
// Samples stay at home unless moving them is needed. First each node sheds what it holds above its share, the samples
// with fewest bytes per cost first, to the nodes with most room; then ranks shed inside their node; then swaps mend
// what is left, inside the node before across nodes; at last every moved sample whose home has room again goes back.
// Bytes between nodes weigh most, then bytes inside nodes, then the number of peers (large samples are moved first).
//
// The certificate bounds movement too: whatever meets the same limit must take the surplus of every node and rank away,
// and the cheapest bytes that do are a fractional knapsack.
// Units: costs as in cost/, bytes are what a sample's move puts on a link. Complexity: O(n log n) and a few passes.
// Guarantee: `met` says whether the limit holds; if it does not, no solver here reached it and the flattest is
// returned.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/balance/bounds.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/sort.hpp"
#include "orchmllm/placement/flow.hpp"
#include "orchmllm/placement/topology.hpp"

namespace orch {

struct Movement {
  Assignment assignment;
  Cost limit = 0;    ///< largest rank cost that was asked for
  bool met = false;  ///< max cost ≤ limit
  std::uint64_t inter_node_bytes = 0;
  std::uint64_t intra_node_bytes = 0;
  std::uint64_t inter_node_bound = 0;  ///< every assignment under the limit moves at least this between nodes
  std::uint64_t moved_bound = 0;       ///< … and this between ranks
  std::uint32_t moved_samples = 0;
  std::uint32_t peers = 0;  ///< ordered pairs of ranks that exchange data

  [[nodiscard]] std::uint64_t moved_bytes() const { return inter_node_bytes + intra_node_bytes; }
};

namespace balance {

namespace detail {

/// Fewest bytes, fractions of samples allowed, that take `surplus` cost away. `by_price` = samples, cheapest bytes
/// first.
template <class Samples>
[[nodiscard]] std::uint64_t cheapest_bytes(const Samples& by_price, std::span<const Cost> costs,
                                           std::span<const std::uint64_t> bytes, Cost surplus) {
  std::uint64_t sum = 0;
  for (const std::uint32_t sample : by_price) {
    if (surplus == 0) break;
    if (costs[sample] <= surplus) {
      sum += bytes[sample];
      surplus -= costs[sample];
    } else {
      const double part = static_cast<double>(surplus) / static_cast<double>(costs[sample]);
      sum += static_cast<std::uint64_t>(part * static_cast<double>(bytes[sample]));
      surplus = 0;
    }
  }
  return sum;
}

class Mover {
 public:
  Mover(std::span<const Cost> costs, std::span<const std::uint64_t> bytes, std::span<const std::uint32_t> home,
        const Topology& topology, Cost share, Cost limit)
      : costs_(costs),
        bytes_(bytes),
        home_(home),
        topology_(topology),
        share_(share),
        limit_(limit),
        rank_of_(home.begin(), home.end()),
        load_(rank_costs(costs, home, topology.ranks())),
        on_rank_(topology.ranks()) {
    for (const std::uint32_t sample : by_price()) on_rank_[home[sample]].push_back(sample);
  }

  void run() {
    shed_nodes();
    for (std::uint32_t node = 0; node < topology_.nodes(); ++node) shed_ranks(node);
    swap_everywhere();
    repack();
    return_home();
  }

  [[nodiscard]] const std::vector<std::uint32_t>& rank_of() const { return rank_of_; }

  /// Bounds at the sampled layout; call before run().
  [[nodiscard]] std::uint64_t moved_bound() const {
    std::uint64_t sum = 0;
    for (std::uint32_t rank = 0; rank < topology_.ranks(); ++rank) {
      if (load_[rank] > limit_) sum += cheapest_bytes(on_rank_[rank], costs_, bytes_, load_[rank] - limit_);
    }
    return sum;
  }
  [[nodiscard]] std::uint64_t inter_node_bound() const {
    std::uint64_t sum = 0;
    for (std::uint32_t node = 0; node < topology_.nodes(); ++node) {
      const Cost load = node_load(node);
      const Cost most = checked_mul(limit_, topology_.size(node));
      if (load > most) sum += cheapest_bytes(samples_of_node(node), costs_, bytes_, load - most);
    }
    return sum;
  }

 private:
  using Samples = std::vector<std::uint32_t>;

  /// Fewer bytes per cost first, larger cost first among equals, then input order.
  [[nodiscard]] bool cheaper(std::uint32_t a, std::uint32_t b) const {
    const double price_a = static_cast<double>(bytes_[a]) * static_cast<double>(costs_[b]);
    const double price_b = static_cast<double>(bytes_[b]) * static_cast<double>(costs_[a]);
    if (price_a != price_b) return price_a < price_b;
    return costs_[a] != costs_[b] ? costs_[a] > costs_[b] : a < b;
  }

  /// Samples that cost anything, in the order in which they are moved.
  [[nodiscard]] Samples by_price() const {
    Samples samples;
    for (std::uint32_t sample = 0; sample < costs_.size(); ++sample) {
      if (costs_[sample] > 0) samples.push_back(sample);
    }
    std::sort(samples.begin(), samples.end(), [&](std::uint32_t a, std::uint32_t b) { return cheaper(a, b); });
    return samples;
  }

  [[nodiscard]] Samples samples_of_node(std::uint32_t node) const {
    Samples samples;
    for (std::uint32_t rank = topology_.first_rank[node]; rank < topology_.first_rank[node + 1]; ++rank) {
      samples.insert(samples.end(), on_rank_[rank].begin(), on_rank_[rank].end());
    }
    std::sort(samples.begin(), samples.end(), [&](std::uint32_t a, std::uint32_t b) { return cheaper(a, b); });
    return samples;
  }

  [[nodiscard]] Cost node_load(std::uint32_t node) const {
    Cost load = 0;
    for (std::uint32_t rank = topology_.first_rank[node]; rank < topology_.first_rank[node + 1]; ++rank) {
      load += load_[rank];
    }
    return load;
  }

  [[nodiscard]] Cost room(std::uint32_t rank) const { return load_[rank] < limit_ ? limit_ - load_[rank] : 0; }

  void move(std::uint32_t sample, std::uint32_t to) {
    const std::uint32_t from = rank_of_[sample];
    std::erase(on_rank_[from], sample);
    on_rank_[to].push_back(sample);
    load_[from] -= costs_[sample];
    load_[to] += costs_[sample];
    rank_of_[sample] = to;
  }

  [[nodiscard]] std::uint32_t roomiest_rank(std::uint32_t node) const {
    std::uint32_t best = topology_.first_rank[node];
    for (std::uint32_t rank = best + 1; rank < topology_.first_rank[node + 1]; ++rank) {
      if (load_[rank] < load_[best]) best = rank;
    }
    return best;
  }

  /// Nodes above their share give to nodes below. A node's share is half the tolerance above the mean: the rest of the
  /// tolerance is what its ranks need to pack whole samples.
  void shed_nodes() {
    std::vector<Cost> load(topology_.nodes());
    std::vector<Cost> share(topology_.nodes());
    Samples leaving;
    for (std::uint32_t node = 0; node < topology_.nodes(); ++node) {
      load[node] = node_load(node);
      share[node] = checked_mul(share_, topology_.size(node));
      if (load[node] > share[node]) choose_leaving(node, load[node], share[node], leaving);
    }
    std::sort(leaving.begin(), leaving.end(),
              [&](std::uint32_t a, std::uint32_t b) { return costs_[a] != costs_[b] ? costs_[a] > costs_[b] : a < b; });
    // The node with most room is on top; ties go to the lower number.
    const auto less_room = [&](std::uint32_t a, std::uint32_t b) {
      const auto key = [&](std::uint32_t node) { return load[node] < share[node] ? share[node] - load[node] : 0; };
      return key(a) != key(b) ? key(a) < key(b) : a > b;
    };
    Samples heap(topology_.nodes());
    for (std::uint32_t node = 0; node < topology_.nodes(); ++node) heap[node] = node;
    std::make_heap(heap.begin(), heap.end(), less_room);
    for (const std::uint32_t sample : leaving) {
      const std::uint32_t node = heap.front();
      const std::uint32_t rank = roomiest_rank(node);
      if (load[node] + costs_[sample] > checked_mul(limit_, topology_.size(node)))
        continue;  // it stays; swaps may help
      std::pop_heap(heap.begin(), heap.end(), less_room);
      move(sample, rank);
      load[node] += costs_[sample];
      std::push_heap(heap.begin(), heap.end(), less_room);
    }
  }

  /// Appends samples whose leaving brings `node` to its share, and takes them off `load`: first from ranks that are
  /// above the share themselves.
  void choose_leaving(std::uint32_t node, Cost& load, Cost share, Samples& leaving) const {
    std::vector<Cost> rank_load(load_.begin() + topology_.first_rank[node],
                                load_.begin() + topology_.first_rank[node + 1]);
    std::vector<char> taken(0);
    const Samples samples = samples_of_node(node);
    taken.assign(samples.size(), 0);
    for (const bool from_any_rank : {false, true}) {
      for (std::size_t i = 0; i < samples.size() && load > share; ++i) {
        const Cost cost = costs_[samples[i]];
        Cost& own = rank_load[rank_of_[samples[i]] - topology_.first_rank[node]];
        if (taken[i] != 0 || cost > load - share || (!from_any_rank && own < share_ + cost)) continue;
        taken[i] = 1;
        load -= cost;
        own -= cost;
        leaving.push_back(samples[i]);
      }
    }
  }

  /// Ranks above the limit give to ranks of their node, then swap with them.
  void shed_ranks(std::uint32_t node) {
    for (std::uint32_t rank = topology_.first_rank[node]; rank < topology_.first_rank[node + 1]; ++rank) {
      if (load_[rank] <= limit_) continue;
      Samples candidates = on_rank_[rank];
      std::sort(candidates.begin(), candidates.end(), [&](std::uint32_t a, std::uint32_t b) { return cheaper(a, b); });
      for (const std::uint32_t sample : candidates) {
        if (load_[rank] <= limit_) break;
        // Down to the share, not below: what is needed and no more.
        if (costs_[sample] > load_[rank] - share_) continue;
        const std::uint32_t to = roomiest_rank(node);
        if (to != rank && costs_[sample] <= room(to)) move(sample, to);
      }
    }
    for (bool again = true; again;) {
      again = false;
      for (std::uint32_t rank = topology_.first_rank[node]; rank < topology_.first_rank[node + 1]; ++rank) {
        if (load_[rank] > limit_ && swap_with(rank, topology_.first_rank[node], topology_.first_rank[node + 1]))
          again = true;
      }
    }
  }

  /// What is still above the limit swaps with any rank.
  void swap_everywhere() {
    for (std::uint32_t rank = 0; rank < topology_.ranks(); ++rank) {
      while (load_[rank] > limit_ && swap_with(rank, 0, topology_.ranks())) {
      }
    }
  }

  /// The move or swap between `rank` and ranks first … last − 1 that lowers `rank` most toward the limit without
  /// raising the other above it; false if there is none.
  bool swap_with(std::uint32_t rank, std::uint32_t first, std::uint32_t last) {
    constexpr std::uint32_t none = ~std::uint32_t{0};
    const Cost excess = load_[rank] - limit_;
    Cost best_gain = 0;
    std::uint32_t best_out = none;
    std::uint32_t best_in = none;
    std::uint32_t best_other = none;
    const auto consider = [&](std::uint32_t out, std::uint32_t in, std::uint32_t other, Cost gain) {
      if (gain == 0 || gain > room(other)) return;
      // Enough is enough: among those that reach the limit the smallest, else the largest.
      const bool better =
          best_gain == 0 || (best_gain < excess ? gain > best_gain : gain >= excess && gain < best_gain);
      if (!better) return;
      best_gain = gain;
      best_out = out;
      best_in = in;
      best_other = other;
    };
    for (std::uint32_t other = first; other < last; ++other) {
      if (other == rank || room(other) == 0) continue;
      for (const std::uint32_t out : on_rank_[rank]) {
        consider(out, none, other, costs_[out]);
        for (const std::uint32_t in : on_rank_[other]) {
          if (costs_[out] > costs_[in]) consider(out, in, other, costs_[out] - costs_[in]);
        }
      }
    }
    if (best_other == none) return false;
    move(best_out, best_other);
    if (best_in != none) move(best_in, rank);
    return true;
  }

  /// Ranks still above the limit are packed anew by LPT, each together with as few of the emptiest ranks as will do.
  void repack() {
    std::vector<std::uint32_t> by_load(topology_.ranks());
    for (std::uint32_t rank = 0; rank < topology_.ranks(); ++rank) {
      if (load_[rank] <= limit_) continue;
      std::iota(by_load.begin(), by_load.end(), 0U);
      std::sort(by_load.begin(), by_load.end(),
                [&](std::uint32_t a, std::uint32_t b) { return load_[a] != load_[b] ? load_[a] < load_[b] : a < b; });
      std::erase(by_load, rank);
      by_load.insert(by_load.begin(), rank);
      for (std::size_t pool = 4; !repack_pool(std::span(by_load).first(std::min(pool, by_load.size()))); pool *= 2) {
        if (pool >= by_load.size()) return;  // not even all ranks together
      }
    }
  }

  /// False, and nothing changed, if LPT does not bring the samples of `pool` under the limit.
  bool repack_pool(std::span<const std::uint32_t> pool) {
    Samples samples;
    for (const std::uint32_t rank : pool) samples.insert(samples.end(), on_rank_[rank].begin(), on_rank_[rank].end());
    std::sort(samples.begin(), samples.end());
    std::vector<Cost> costs(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) costs[i] = costs_[samples[i]];
    const Assignment packed = greedy(costs, static_cast<std::uint32_t>(pool.size()));
    if (packed.max_cost() > limit_) return false;

    // Batches go where most of their bytes are at home: node first, then rank.
    constexpr std::uint64_t node_weight = 16;
    std::map<std::uint32_t, std::vector<std::uint32_t>> places_of_node;
    for (std::uint32_t place = 0; place < pool.size(); ++place)
      places_of_node[topology_.node_of[pool[place]]].push_back(place);
    std::vector<std::map<std::uint32_t, std::uint64_t>> weight(pool.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::uint32_t home = home_[samples[i]];
      const auto near = places_of_node.find(topology_.node_of[home]);
      if (near == places_of_node.end()) continue;
      for (const std::uint32_t place : near->second) {
        weight[packed.rank_of[i]][place] += bytes_[samples[i]] * (pool[place] == home ? node_weight + 1 : node_weight);
      }
    }
    TrafficMatrix matrix;
    matrix.places = static_cast<std::uint32_t>(pool.size());
    for (const auto& row : weight) {
      for (const auto& [place, bytes] : row) matrix.entries.push_back({place, bytes});
      matrix.first.push_back(matrix.entries.size());
    }
    const std::vector<std::uint32_t> one_each(pool.size(), 1);
    const std::vector<std::uint32_t> place_of = placement::transport(matrix, one_each);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::uint32_t to = pool[place_of[packed.rank_of[i]]];
      if (rank_of_[samples[i]] != to) move(samples[i], to);
    }
    return true;
  }

  /// Samples that were moved and whose home, or home node, has room again; most bytes first.
  void return_home() {
    Samples moved;
    for (std::uint32_t sample = 0; sample < rank_of_.size(); ++sample) {
      if (rank_of_[sample] != home_[sample]) moved.push_back(sample);
    }
    std::sort(moved.begin(), moved.end(),
              [&](std::uint32_t a, std::uint32_t b) { return bytes_[a] != bytes_[b] ? bytes_[a] > bytes_[b] : a < b; });
    for (const std::uint32_t sample : moved) {
      const std::uint32_t home_node = topology_.node_of[home_[sample]];
      if (costs_[sample] <= room(home_[sample])) {
        move(sample, home_[sample]);
      } else if (topology_.node_of[rank_of_[sample]] != home_node) {
        const std::uint32_t near = roomiest_rank(home_node);
        if (costs_[sample] <= room(near)) move(sample, near);
      }
    }
  }

  std::span<const Cost> costs_;
  std::span<const std::uint64_t> bytes_;
  std::span<const std::uint32_t> home_;
  const Topology& topology_;
  Cost share_;
  Cost limit_;
  std::vector<std::uint32_t> rank_of_;
  std::vector<Cost> load_;
  std::vector<Samples> on_rank_;
};

inline void count_movement(Movement& result, std::span<const std::uint32_t> home, std::span<const std::uint64_t> bytes,
                           const Topology& topology) {
  std::vector<std::uint64_t> pairs;
  for (std::size_t i = 0; i < home.size(); ++i) {
    const std::uint32_t to = result.assignment.rank_of[i];
    if (to == home[i]) continue;
    ++result.moved_samples;
    pairs.push_back(std::uint64_t{home[i]} * topology.ranks() + to);
    std::uint64_t& sum =
        topology.node_of[to] == topology.node_of[home[i]] ? result.intra_node_bytes : result.inter_node_bytes;
    sum = checked_add(sum, bytes[i]);
  }
  std::sort(pairs.begin(), pairs.end());
  result.peers = static_cast<std::uint32_t>(std::unique(pairs.begin(), pairs.end()) - pairs.begin());
}

}  // namespace detail

/// `tolerance` ≥ 0: the limit is (1 + tolerance) · lower bound. Throws InvalidInput for spans of unequal size or a rank
/// out of range, Overflow.
[[nodiscard]] inline Movement movement(std::span<const Cost> costs, std::span<const std::uint64_t> bytes,
                                       std::span<const std::uint32_t> home_rank, const Topology& topology,
                                       double tolerance = 0.01) {
  if (bytes.size() != costs.size() || home_rank.size() != costs.size()) {
    throw InvalidInput(
        "costs, bytes and home ranks must be given for the same samples: " + std::to_string(costs.size()) + ", " +
        std::to_string(bytes.size()) + ", " + std::to_string(home_rank.size()));
  }
  if (!(tolerance >= 0) || tolerance > 1e6) throw InvalidInput("tolerance must be at least 0, at most 1000000");
  const std::uint32_t ranks = topology.ranks();
  require_ranks(ranks);
  const std::vector<std::uint32_t> order = descending_order(costs);
  const Cost bound = lower_bound(costs, order, ranks);
  const auto above = [&](double part) {
    return checked_add(bound, static_cast<Cost>(static_cast<double>(bound) * part));
  };

  Movement result;
  result.limit = above(tolerance);
  detail::Mover mover(costs, bytes, home_rank, topology, above(tolerance / 2), result.limit);
  result.moved_bound = mover.moved_bound();
  result.inter_node_bound = mover.inter_node_bound();
  mover.run();
  result.assignment = {ranks, mover.rank_of(), rank_costs(costs, mover.rank_of(), ranks), bound, "movement"};
  if (result.assignment.max_cost() > result.limit) {
    Assignment flat = greedy(costs, ranks);
    if (flat.max_cost() < result.assignment.max_cost()) {
      const Placement placed = placement::place_total(traffic_matrix(home_rank, flat.rank_of, bytes, ranks), topology);
      for (std::uint32_t& rank : flat.rank_of) rank = placed.rank_of[rank];
      flat.rank_cost = rank_costs(costs, flat.rank_of, ranks);
      result.assignment = std::move(flat);
    }
  }
  result.met = result.assignment.max_cost() <= result.limit;
  detail::count_movement(result, home_rank, bytes, topology);
  return result;
}

}  // namespace balance

}  // namespace orch
