// Brings every rank under its limit by moving little (../movement.hpp).
//
//   nodes    above their share give to the node with most room: first samples of ranks that are above the share too
//   ranks    above the limit give to the rank of their node with most room
//   swaps    mend what is left: inside the node, by refinement of the whole node where single swaps do not do, then
//   with
//            the roomiest ranks of all
//   repack   packs a rank that nothing mends anew, together with as few of the emptiest ranks as will do
//   return   moved samples go home, or to their home node, where there is room again
//
// Samples with fewest bytes per cost go first. Where counts or a capacity forbid a move, a cheap sample comes back for
// the one that goes. Between share and limit lies what ranks need to pack whole samples.
// Complexity: O(n) and O(k log n) for k samples looked at, as long as no rank needs mending by swaps.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "orchmllm/balance/bounds.hpp"
#include "orchmllm/balance/conv_packed.hpp"
#include "orchmllm/balance/detail/rank_loads.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/balance/refine.hpp"
#include "orchmllm/placement/flow.hpp"
#include "orchmllm/placement/topology.hpp"

namespace orch::balance::detail {

/// What leaves first: fewest bytes per cost, compared exactly, then lower numbers.
struct Priced {
  std::uint64_t bytes = 0;
  Cost cost = 0;  ///< above 0
  std::uint32_t item = 0;

  [[nodiscard]] bool before(const Priced& other) const {
    __extension__ using Wide = unsigned __int128;
    const Wide mine = static_cast<Wide>(bytes) * other.cost;
    const Wide its = static_cast<Wide>(other.bytes) * cost;
    return mine != its ? mine < its : item < other.item;
  }
};

/// Priced items of which only those that are asked for get sorted: a heap.
class PriceList {
 public:
  void add(const Priced& priced) { heap_.push_back(priced); }
  void ready() { std::make_heap(heap_.begin(), heap_.end(), Later()); }
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] Priced next() {
    std::pop_heap(heap_.begin(), heap_.end(), Later());
    const Priced first = heap_.back();
    heap_.pop_back();
    return first;
  }
  void clear() { heap_.clear(); }

 private:
  struct Later {
    bool operator()(const Priced& a, const Priced& b) const { return b.before(a); }
  };
  std::vector<Priced> heap_;
};

[[nodiscard]] inline Cost saturating_add(Cost a, Cost b) {
  return a > std::numeric_limits<Cost>::max() - b ? std::numeric_limits<Cost>::max() : a + b;
}

/// Loads that ranks should stay under: the limit, what overloaded nodes give down to, and what makes them give.
struct RankLimits {
  std::vector<Cost> limit;
  std::vector<Cost> share;
  std::vector<Cost> trigger;  ///< share ≤ trigger ≤ limit
};

/// Where items are at home, and what their move from there puts on a link.
struct Homes {
  std::vector<std::uint32_t> rank;
  std::vector<std::uint64_t> bytes;
};

class Mover {
 public:
  Mover(RankLoads loads, const RankLimits& limits, const Homes& homes, const Topology& topology)
      : loads_(std::move(loads)),
        limits_(limits),
        homes_(homes),
        topology_(topology),
        emptiest_node_(topology.nodes()) {
    const std::uint32_t nodes = topology.nodes();
    node_load_.assign(nodes, 0);
    emptiest_rank_.reserve(nodes);
    for (std::uint32_t node = 0; node < nodes; ++node) {
      emptiest_rank_.emplace_back(topology.size(node));
      for (std::uint32_t rank = first(node); rank < last(node); ++rank) {
        node_load_[node] += loads_.load(rank);
        emptiest_rank_[node].update(rank - first(node), ~room(rank));
      }
      node_share_.push_back(sum(limits.share, node));
      node_limit_.push_back(sum(limits.limit, node));
      emptiest_node_.update(node, ~node_room(node));
    }
  }

  /// True if every rank ends under its limit.
  bool run() {
    if (!within()) {
      for (std::uint32_t node = 0; node < topology_.nodes(); ++node) shed_node(node);
      for (std::uint32_t node = 0; node < topology_.nodes(); ++node) shed_ranks(node);
      for (std::uint32_t rank = 0; rank < topology_.ranks(); ++rank) {
        const std::uint32_t node = topology_.node_of[rank];
        if (!swap_down(rank, node) && !refine_node(node) && !swap_down(rank, std::nullopt) && !repack(rank))
          return false;
      }
    }
    return_home();
    return true;
  }

  [[nodiscard]] const std::vector<std::uint32_t>& rank_of() const { return loads_.rank_of(); }

 private:
  using Items = std::vector<std::uint32_t>;

  struct Exchange {
    std::uint32_t out = no_item;
    std::uint32_t to = 0;
    std::uint32_t in = no_item;
  };

  [[nodiscard]] std::uint32_t first(std::uint32_t node) const { return topology_.first_rank[node]; }
  [[nodiscard]] std::uint32_t last(std::uint32_t node) const { return topology_.first_rank[node + 1]; }
  [[nodiscard]] Cost sum(const std::vector<Cost>& of_rank, std::uint32_t node) const {
    return std::accumulate(of_rank.begin() + first(node), of_rank.begin() + last(node), Cost{0}, saturating_add);
  }
  [[nodiscard]] bool over(std::uint32_t rank) const { return loads_.load(rank) > limits_.limit[rank]; }
  [[nodiscard]] Cost room(std::uint32_t rank) const {
    const Cost load = loads_.load(rank);
    return load < limits_.limit[rank] ? limits_.limit[rank] - load : 0;
  }
  [[nodiscard]] Cost node_room(std::uint32_t node) const {
    return node_load_[node] < node_share_[node] ? node_share_[node] - node_load_[node] : 0;
  }
  [[nodiscard]] std::uint32_t roomiest(std::uint32_t node) const { return first(node) + emptiest_rank_[node].rank(); }
  [[nodiscard]] bool within() const {
    for (std::uint32_t rank = 0; rank < topology_.ranks(); ++rank) {
      if (over(rank)) return false;
    }
    return true;
  }

  void move(std::uint32_t item, std::uint32_t to) {
    const std::uint32_t from = loads_.rank_of(item);
    for (const std::uint32_t rank : {from, to}) node_load_[topology_.node_of[rank]] -= loads_.load(rank);
    loads_.move(item, to);
    for (const std::uint32_t rank : {from, to}) {
      const std::uint32_t node = topology_.node_of[rank];
      node_load_[node] += loads_.load(rank);
      emptiest_rank_[node].update(rank - first(node), ~room(rank));
    }
    for (const std::uint32_t rank : {from, to})
      emptiest_node_.update(topology_.node_of[rank], ~node_room(topology_.node_of[rank]));
  }

  void take(const Exchange& exchange) {
    const std::uint32_t from = loads_.rank_of(exchange.out);
    move(exchange.out, exchange.to);
    if (exchange.in != no_item) move(exchange.in, from);
  }

  /// What `rank` would have less, and exchange.to more, after the exchange; nothing gained where it would not lose.
  [[nodiscard]] Cost relief(const Exchange& exchange) const {
    const std::uint32_t from = loads_.rank_of(exchange.out);
    const Cost before = loads_.load(from);
    const Cost after = loads_.load_after(from, exchange.out, exchange.in);
    return after < before ? before - after : 0;
  }
  [[nodiscard]] Cost load_at_target(const Exchange& exchange) const {
    return loads_.load_after(exchange.to, exchange.in, exchange.out);
  }

  void add_priced(std::uint32_t rank, PriceList& list) const {
    for (const std::uint32_t item : loads_.on_rank(rank)) {
      const Cost cost = loads_.load(rank) - loads_.load_after(rank, item, no_item);
      // What has left home already can go on for nothing.
      if (cost > 0) list.add({homes_.rank[item] == rank ? homes_.bytes[item] : 0, cost, item});
    }
  }

  /// `item` alone, or with the least costly sample that the constraints let come back for it; nothing if there is none.
  [[nodiscard]] std::optional<Exchange> way(std::uint32_t item, std::uint32_t to) const {
    if (loads_.allowed(item, to)) return Exchange{item, to, no_item};
    Exchange best;
    for (const std::uint32_t in : loads_.on_rank(to)) {
      // Items are numbered by descending cost.
      if (in > item && (best.in == no_item || in > best.in) && loads_.allowed(item, to, in)) best = {item, to, in};
    }
    if (best.in == no_item) return std::nullopt;
    return best;
  }

  void shed_node(std::uint32_t node) {
    const Cost trigger = sum(limits_.trigger, node);
    for (const bool any_rank : {false, true}) {
      if (node_load_[node] <= trigger) return;
      prices_.clear();
      for (std::uint32_t rank = first(node); rank < last(node); ++rank) {
        if (any_rank || loads_.load(rank) > limits_.share[rank]) add_priced(rank, prices_);
      }
      prices_.ready();
      while (node_load_[node] > trigger && !prices_.empty()) shed_from_node(prices_.next().item, node, any_rank);
    }
  }

  void shed_from_node(std::uint32_t item, std::uint32_t node, bool any_rank) {
    const std::uint32_t target = emptiest_node_.rank();
    if (target == node) return;
    const std::optional<Exchange> exchange = way(item, roomiest(target));
    if (!exchange) return;
    const std::uint32_t from = loads_.rank_of(item);
    const Cost less = relief(*exchange);
    if (less == 0 || less > node_load_[node] - node_share_[node]) return;
    if (!any_rank && loads_.load(from) < saturating_add(limits_.share[from], less)) return;
    const Cost grown = node_load_[target] - loads_.load(exchange->to) + load_at_target(*exchange);
    if (grown <= node_limit_[target]) take(*exchange);
  }

  void shed_ranks(std::uint32_t node) {
    for (std::uint32_t rank = first(node); rank < last(node); ++rank) {
      if (!over(rank)) continue;
      prices_.clear();
      add_priced(rank, prices_);
      prices_.ready();
      while (over(rank) && !prices_.empty()) shed_from_rank(prices_.next().item, rank);
    }
  }

  void shed_from_rank(std::uint32_t item, std::uint32_t rank) {
    const std::uint32_t to = roomiest(topology_.node_of[rank]);
    if (to == rank) return;
    const std::optional<Exchange> exchange = way(item, to);
    if (!exchange || load_at_target(*exchange) > limits_.limit[to]) return;
    // Down to the share, not below: what is needed and no more.
    const Cost less = relief(*exchange);
    if (less > 0 && less <= loads_.load(rank) - limits_.share[rank]) take(*exchange);
  }

  /// Exchanges with the roomiest ranks of `node`, or of all, until `rank` is under its limit; false if it stays above.
  bool swap_down(std::uint32_t rank, std::optional<std::uint32_t> node) {
    constexpr int most_steps = 64;
    if (!over(rank)) return true;
    const Items partners = partners_of(rank, node ? first(*node) : 0, node ? last(*node) : topology_.ranks());
    for (int step = 0; step < most_steps && over(rank); ++step) {
      const std::optional<Exchange> best = best_exchange(rank, partners);
      if (!best) return false;
      take(*best);
    }
    return !over(rank);
  }

  /// The roomiest of ranks begin … end − 1.
  [[nodiscard]] Items partners_of(std::uint32_t rank, std::uint32_t begin, std::uint32_t end) const {
    constexpr std::size_t most = 16;
    Items partners;
    for (std::uint32_t other = begin; other < end; ++other) {
      if (other != rank && room(other) > 0) partners.push_back(other);
    }
    const auto roomier = [&](std::uint32_t a, std::uint32_t b) {
      return room(a) != room(b) ? room(a) > room(b) : a < b;
    };
    const auto middle = partners.begin() + static_cast<std::ptrdiff_t>(std::min(most, partners.size()));
    std::partial_sort(partners.begin(), middle, partners.end(), roomier);
    partners.erase(middle, partners.end());
    return partners;
  }

  struct Best {
    Exchange exchange;
    Cost after = 0;  ///< load of the rank that gives
    double bytes = 0;
  };

  /// With the first partner that allows it, the exchange that brings `rank` under its limit for fewest bytes, else the
  /// one that brings it closest; no partner ends above its own.
  [[nodiscard]] std::optional<Exchange> best_exchange(std::uint32_t rank, const Items& partners) const {
    // The closest to the ideal on both sides; constraints may forbid them.
    const std::size_t around = constrained() ? 2 : 1;
    Best best{{}, loads_.load(rank), 0};
    const Items outs = sorted(loads_.on_rank(rank));
    for (const std::uint32_t partner : partners) {
      if (best.after <= limits_.limit[rank]) break;
      const Cost wanted = std::min(loads_.load(rank) - limits_.limit[rank], room(partner));
      const Items ins = sorted(loads_.on_rank(partner));
      std::size_t i = 0;
      for (const std::uint32_t out : outs) {
        consider(rank, {out, partner, no_item}, best);
        const Cost cost = item_cost(out);
        const Cost ideal = cost > wanted ? cost - wanted : 0;
        while (i < ins.size() && item_cost(ins[i]) > ideal) ++i;
        const std::size_t end = std::min(ins.size(), i + around);
        for (std::size_t k = i >= around ? i - around : 0; k < end; ++k) consider(rank, {out, partner, ins[k]}, best);
      }
    }
    if (best.exchange.out == no_item) return std::nullopt;
    return best.exchange;
  }

  void consider(std::uint32_t rank, const Exchange& exchange, Best& best) const {
    const Cost after = loads_.load_after(rank, exchange.out, exchange.in);
    const Cost limit = limits_.limit[rank];
    const bool reached = best.after <= limit;
    if (after >= best.after && !(reached && after <= limit)) return;
    const double bytes =
        link_bytes(exchange.out, exchange.to) - link_bytes(exchange.out, rank) +
        (exchange.in == no_item ? 0 : link_bytes(exchange.in, rank) - link_bytes(exchange.in, exchange.to));
    if (reached && bytes >= best.bytes) return;
    if (load_at_target(exchange) > limits_.limit[exchange.to]) return;
    if (!loads_.allowed(exchange.out, exchange.to, exchange.in)) return;
    best = {exchange, after, bytes};
  }

  /// Bytes that `item` sends when it is on `rank`; between nodes they weigh more.
  [[nodiscard]] double link_bytes(std::uint32_t item, std::uint32_t rank) const {
    constexpr double node_weight = 16;
    if (homes_.rank[item] == rank) return 0;
    const bool near = topology_.node_of[homes_.rank[item]] == topology_.node_of[rank];
    return static_cast<double>(homes_.bytes[item]) * (near ? 1 : node_weight);
  }

  [[nodiscard]] bool constrained() const {
    const Problem& problem = loads_.problem();
    return problem.min_count > 0 || problem.max_count < problem.samples || !problem.speed.empty() ||
           problem.capacity < std::numeric_limits<std::uint64_t>::max();
  }

  [[nodiscard]] Cost item_cost(std::uint32_t item) const { return loads_.problem().items[item].cost; }

  /// By descending cost.
  [[nodiscard]] static Items sorted(std::span<const std::uint32_t> items) {
    Items result(items.begin(), items.end());
    std::sort(result.begin(), result.end());
    return result;
  }

  /// Refinement (refine.hpp) of what the node's ranks hold, from where it is; false, and nothing changed, if a rank
  /// stays above its limit. Not under constraints, nor for costs that do not add up.
  bool refine_node(std::uint32_t node) {
    if (constrained() || loads_.conv_alpha() != 0 || node_load_[node] > node_limit_[node]) return false;
    Items items;
    for (std::uint32_t rank = first(node); rank < last(node); ++rank) {
      items.insert(items.end(), loads_.on_rank(rank).begin(), loads_.on_rank(rank).end());
    }
    std::sort(items.begin(), items.end());
    std::vector<Cost> costs;
    Items at;
    for (const std::uint32_t item : items) {
      costs.push_back(item_cost(item));
      at.push_back(loads_.rank_of(item) - first(node));
    }
    const Cost limit = limits_.limit[first(node)];
    const Cost bound = lower_bound(costs, descending_order(costs), topology_.size(node));
    if (bound > limit) return false;
    // A thousandth less than what the limit allows, so that rounding cannot end the refinement just above it.
    const double gap = 0.999 * static_cast<double>(limit - bound) / static_cast<double>(bound);
    const Assignment refined = refine(costs, at, topology_.size(node), {}, {.target_gap = gap, .max_steps = 256});
    if (refined.max_cost() > limit) return false;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (refined.rank_of[i] != at[i]) move(items[i], first(node) + refined.rank_of[i]);
    }
    return true;
  }

  /// The greedy solver packs `rank` anew, with 3, 7, … of the roomiest ranks, until all are under their limit; false,
  /// and nothing changed, if not even 255 do. Not under constraints, which that solver does not know.
  bool repack(std::uint32_t rank) {
    if (constrained()) return false;
    Items by_room(topology_.ranks());
    std::iota(by_room.begin(), by_room.end(), 0U);
    const std::size_t most = std::min<std::size_t>(256, by_room.size());
    const auto roomier = [&](std::uint32_t a, std::uint32_t b) {
      if (a == rank || b == rank) return a == rank && b != rank;
      return room(a) != room(b) ? room(a) > room(b) : a < b;
    };
    std::partial_sort(by_room.begin(), by_room.begin() + static_cast<std::ptrdiff_t>(most), by_room.end(), roomier);
    for (std::size_t pool = 4;; pool *= 2) {
      if (repack_pool(sorted(std::span(by_room).first(std::min(pool, most))))) return true;
      if (pool >= most) return false;
    }
  }

  bool repack_pool(const Items& pool) {
    Items items;
    for (const std::uint32_t rank : pool)
      items.insert(items.end(), loads_.on_rank(rank).begin(), loads_.on_rank(rank).end());
    std::sort(items.begin(), items.end());
    std::vector<ConvPackedCost::Batch> batches;
    for (const std::uint32_t item : items) batches.push_back(loads_.batch(item));
    const auto ranks = static_cast<std::uint32_t>(pool.size());
    const Assignment packed = conv_packed(batches, ranks, {.conv_alpha = loads_.conv_alpha(), .packed = {}});
    if (packed.max_cost() > limits_.limit[pool.front()]) return false;  // without speeds all limits are equal

    // Packed batches go where most of their bytes are at home.
    std::vector<std::uint32_t> from;
    std::vector<std::uint32_t> to;
    std::vector<std::uint64_t> bytes;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto home = std::lower_bound(pool.begin(), pool.end(), homes_.rank[items[i]]);
      if (home == pool.end() || *home != homes_.rank[items[i]]) continue;
      from.push_back(static_cast<std::uint32_t>(home - pool.begin()));
      to.push_back(packed.rank_of[i]);
      bytes.push_back(homes_.bytes[items[i]]);
    }
    std::vector<std::uint32_t> node_sizes;
    for (std::size_t i = 0; i < pool.size(); ++i) {
      if (i == 0 || topology_.node_of[pool[i]] != topology_.node_of[pool[i - 1]]) node_sizes.push_back(0);
      ++node_sizes.back();
    }
    const Placement placed = placement::place_total(traffic_matrix(from, to, bytes, ranks), topology(node_sizes));
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::uint32_t rank = pool[placed.rank_of[packed.rank_of[i]]];
      if (rank != loads_.rank_of(items[i])) move(items[i], rank);
    }
    return true;
  }

  /// Most bytes first, those between nodes before all others.
  void return_home() {
    struct Moved {
      bool near;
      std::uint64_t bytes;
      std::uint32_t item;
    };
    std::vector<Moved> moved;
    for (std::uint32_t item = 0; item < rank_of().size(); ++item) {
      const std::uint32_t home = homes_.rank[item];
      if (loads_.rank_of(item) == home) continue;
      moved.push_back({topology_.node_of[loads_.rank_of(item)] == topology_.node_of[home], homes_.bytes[item], item});
    }
    std::sort(moved.begin(), moved.end(), [](const Moved& a, const Moved& b) {
      if (a.near != b.near) return b.near;
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.item < b.item;
    });
    for (const auto& [near, bytes, item] : moved) {
      const std::uint32_t home = homes_.rank[item];
      if (!move_if_fits(item, home) && !near) move_if_fits(item, roomiest(topology_.node_of[home]));
    }
  }

  bool move_if_fits(std::uint32_t item, std::uint32_t to) {
    if (!loads_.allowed(item, to) || loads_.load_after(to, no_item, item) > limits_.limit[to]) return false;
    move(item, to);
    return true;
  }

  RankLoads loads_;
  const RankLimits& limits_;
  const Homes& homes_;
  const Topology& topology_;
  std::vector<Cost> node_load_;
  std::vector<Cost> node_share_;
  std::vector<Cost> node_limit_;
  std::vector<LeastTree<PairedLoad>> emptiest_rank_;  ///< node → its rank with most room
  LeastTree<PairedLoad> emptiest_node_;               ///< the node with most room under its share
  PriceList prices_;
};

}  // namespace orch::balance::detail
