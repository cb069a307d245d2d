// Where movement-aware balancing starts: items at home, or as near to home as counts and capacity let them be.
//
// A group's home is the node, and there the rank, that holds most of its bytes. Where home breaks a constraint, ranks
// give what is too much, cheapest bytes first, and ranks with too few get it, the own node first.
// Complexity: O(n log n); where home is mended, O(n log n + moved · ranks).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "orchmllm/balance/constrained.hpp"
#include "orchmllm/balance/detail/mover.hpp"

namespace orch::balance::detail {

/// Home of a group: most bytes on its node, then on the rank; ties to lower numbers.
[[nodiscard]] inline std::pair<std::uint32_t, std::uint64_t> home_of_group(std::vector<std::uint32_t> members,
                                                                           std::span<const std::uint64_t> bytes,
                                                                           std::span<const std::uint32_t> home_rank,
                                                                           const Topology& topology) {
  std::sort(members.begin(), members.end(), [&](std::uint32_t a, std::uint32_t b) {
    return home_rank[a] != home_rank[b] ? home_rank[a] < home_rank[b] : a < b;
  });
  struct Held {
    std::uint32_t rank;
    std::uint64_t on_rank;
    std::uint64_t on_node;
  };
  std::vector<Held> held;
  for (const std::uint32_t sample : members) {
    if (held.empty() || held.back().rank != home_rank[sample]) held.push_back({home_rank[sample], 0, 0});
    held.back().on_rank = checked_add(held.back().on_rank, bytes[sample]);
  }
  for (Held& one : held) {
    for (const Held& other : held) {
      if (topology.node_of[one.rank] == topology.node_of[other.rank])
        one.on_node = checked_add(one.on_node, other.on_rank);
    }
  }
  const auto best = std::max_element(held.begin(), held.end(), [](const Held& a, const Held& b) {
    return a.on_node != b.on_node ? a.on_node < b.on_node : a.on_rank < b.on_rank;
  });
  return {best->rank, best->on_rank};
}

[[nodiscard]] inline Homes homes_of(const Problem& problem, std::span<const std::uint64_t> bytes,
                                    std::span<const std::uint32_t> home_rank, const Topology& topology) {
  Homes homes;
  homes.rank.reserve(problem.items.size());
  homes.bytes.reserve(problem.items.size());
  for (std::size_t item = 0; item < problem.items.size(); ++item) {
    const auto [rank, held] = problem.members.empty()
                                  ? std::pair(home_rank[problem.sample[item]], bytes[problem.sample[item]])
                                  : home_of_group(problem.members[item], bytes, home_rank, topology);
    homes.rank.push_back(rank);
    homes.bytes.push_back(held);
  }
  return homes;
}

/// Mends a layout of items that breaks counts or capacity.
class StartMender {
 public:
  StartMender(const Problem& problem, const Homes& homes, const Topology& topology)
      : problem_(problem),
        homes_(homes),
        topology_(topology),
        on_rank_(problem.ranks),
        held_(problem.ranks),
        gone_(homes.rank.size(), 0) {
    for (std::uint32_t item = 0; item < homes.rank.size(); ++item) {
      on_rank_[homes.rank[item]].push_back(item);
      held_[homes.rank[item]].count += problem.items[item].count;
      held_[homes.rank[item]].weight = checked_add(held_[homes.rank[item]].weight, problem.items[item].weight);
    }
  }

  /// Nothing if the items that must go find no place.
  [[nodiscard]] std::optional<std::vector<std::uint32_t>> run() {
    take_surplus();
    if (!take_missing()) return std::nullopt;
    if (taken_.empty()) return homes_.rank;
    return place_taken();
  }

 private:
  using Items = std::vector<std::uint32_t>;
  struct Held {
    std::uint32_t count = 0;
    std::uint64_t weight = 0;
  };

  void take(std::uint32_t item) {
    Held& held = held_[homes_.rank[item]];
    held.count -= problem_.items[item].count;
    held.weight -= problem_.items[item].weight;
    gone_[item] = 1;
    taken_.push_back(item);
  }

  [[nodiscard]] Items cheapest_first(Items items) const {
    std::stable_sort(items.begin(), items.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return homes_.bytes[a] < homes_.bytes[b]; });
    return items;
  }
  [[nodiscard]] Items cheapest_per_weight_first(const Items& items) const {
    std::vector<Priced> priced;
    for (const std::uint32_t item : items) {
      if (problem_.items[item].weight > 0) priced.push_back({homes_.bytes[item], problem_.items[item].weight, item});
    }
    std::sort(priced.begin(), priced.end(), [](const Priced& a, const Priced& b) { return a.before(b); });
    Items order;
    for (const Priced& one : priced) order.push_back(one.item);
    return order;
  }

  void take_surplus() {
    // Of the fullest ranks some may keep one sample more than the others.
    std::vector<std::uint32_t> most(problem_.ranks, problem_.max_count);
    if (problem_.ranks_at_max < problem_.ranks) {
      Items fullest(problem_.ranks);
      std::iota(fullest.begin(), fullest.end(), 0U);
      std::stable_sort(fullest.begin(), fullest.end(),
                       [&](std::uint32_t a, std::uint32_t b) { return held_[a].count > held_[b].count; });
      for (std::size_t i = problem_.ranks_at_max; i < fullest.size(); ++i) --most[fullest[i]];
    }
    for (std::uint32_t rank = 0; rank < problem_.ranks; ++rank) {
      if (held_[rank].weight > problem_.capacity) {
        for (const std::uint32_t item : cheapest_per_weight_first(on_rank_[rank])) {
          if (held_[rank].weight <= problem_.capacity) break;
          take(item);
        }
      }
      if (held_[rank].count > most[rank]) {
        for (const std::uint32_t item : cheapest_first(on_rank_[rank])) {
          if (held_[rank].count <= most[rank]) break;
          if (gone_[item] == 0) take(item);
        }
      }
    }
  }

  /// Where ranks lack more than was taken, others give down to their minimum; false if that is not enough.
  [[nodiscard]] bool take_missing() {
    std::uint64_t missing = 0;
    std::uint64_t have = 0;
    for (const Held& held : held_) missing += problem_.min_count > held.count ? problem_.min_count - held.count : 0;
    for (const std::uint32_t item : taken_) have += problem_.items[item].count;
    if (missing <= have) return true;
    Items all(problem_.items.size());
    std::iota(all.begin(), all.end(), 0U);
    for (const std::uint32_t item : cheapest_first(std::move(all))) {
      if (missing <= have) return true;
      const std::uint32_t count = problem_.items[item].count;
      if (gone_[item] != 0 || held_[homes_.rank[item]].count < problem_.min_count + count) continue;
      take(item);
      have += count;
    }
    return missing <= have;
  }

  [[nodiscard]] std::optional<std::vector<std::uint32_t>> place_taken() {
    Placer placer(problem_);
    for (std::uint32_t rank = 0; rank < problem_.ranks; ++rank) {
      for (const std::uint32_t item : on_rank_[rank]) {
        if (gone_[item] == 0) placer.place(problem_.items[item], rank);
      }
    }
    std::sort(taken_.begin(), taken_.end(), [&](std::uint32_t a, std::uint32_t b) {
      const std::uint64_t weight_a = problem_.items[a].weight;
      const std::uint64_t weight_b = problem_.items[b].weight;
      return weight_a != weight_b ? weight_a > weight_b : a < b;
    });
    std::vector<std::uint32_t> rank_of = homes_.rank;
    for (const std::uint32_t item : taken_) {
      const std::uint32_t node = topology_.node_of[homes_.rank[item]];
      std::optional<std::uint32_t> rank =
          lightest(placer, problem_.items[item], topology_.first_rank[node], topology_.first_rank[node + 1]);
      if (!rank) rank = lightest(placer, problem_.items[item], 0, problem_.ranks);
      if (!rank) return std::nullopt;
      placer.place(problem_.items[item], *rank);
      rank_of[item] = *rank;
    }
    return rank_of;
  }

  [[nodiscard]] static std::optional<std::uint32_t> lightest(const Placer& placer, const Problem::Item& item,
                                                             std::uint32_t first, std::uint32_t last) {
    std::optional<std::uint32_t> best;
    for (std::uint32_t rank = first; rank < last; ++rank) {
      if (placer.allowed(item, rank) && (!best || placer.load(rank) < placer.load(*best))) best = rank;
    }
    return best;
  }

  const Problem& problem_;
  const Homes& homes_;
  const Topology& topology_;
  std::vector<Items> on_rank_;
  std::vector<Held> held_;
  std::vector<char> gone_;  ///< item → whether it was taken from its home
  Items taken_;
};

/// Home where it meets counts and capacity, else the layout nearest to it that was found; nothing if none was.
[[nodiscard]] inline std::optional<std::vector<std::uint32_t>> start_near_home(const Problem& problem,
                                                                               const Homes& homes,
                                                                               const Topology& topology) {
  const bool any_counts = problem.min_count == 0 && problem.max_count == problem.samples;
  const bool any_weight = problem.capacity == std::numeric_limits<std::uint64_t>::max();
  if (any_counts && any_weight) return homes.rank;
  return StartMender(problem, homes, topology).run();
}

}  // namespace orch::balance::detail
