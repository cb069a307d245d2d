// Samples on ranks while single ones move: true loads, and what the constraints allow.
//
// A load is a convolution + packed cost, α_c · units · longest + packed. Costs that add up are the case α_c = 0, padded
// costs b · f(m) the case where every sample is one unit as long as f of its length. A rank knows its two longest
// samples, so the load after any exchange of one sample for another is O(1); a move is O(1) too, unless one of the two
// longest leaves, which looks through the rank. Items are those of Problem: samples, or groups that stay together.
// Requires that all items on one rank would not overflow.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "orchmllm/balance/constraints.hpp"
#include "orchmllm/cost/conv_packed.hpp"

namespace orch::balance::detail {

constexpr std::uint32_t no_item = ~std::uint32_t{0};

class RankLoads {
 public:
  using Batch = ConvPackedCost::Batch;

  RankLoads(const Problem& problem, std::span<const Batch> items, Cost conv_alpha, std::vector<std::uint32_t> rank_of)
      : problem_(problem),
        items_(items),
        conv_alpha_(conv_alpha),
        rank_of_(std::move(rank_of)),
        place_(items.size()),
        ranks_(problem.ranks) {
    std::vector<std::uint32_t> size(problem.ranks, 0);
    for (const std::uint32_t rank : rank_of_) ++size[rank];
    for (std::uint32_t rank = 0; rank < problem.ranks; ++rank) ranks_[rank].items.reserve(size[rank]);
    for (std::uint32_t item = 0; item < rank_of_.size(); ++item) add(item, rank_of_[item]);
  }

  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] Cost conv_alpha() const { return conv_alpha_; }
  [[nodiscard]] const Batch& batch(std::uint32_t item) const { return items_[item]; }
  [[nodiscard]] const std::vector<std::uint32_t>& rank_of() const { return rank_of_; }
  [[nodiscard]] std::uint32_t rank_of(std::uint32_t item) const { return rank_of_[item]; }
  [[nodiscard]] std::span<const std::uint32_t> on_rank(std::uint32_t rank) const { return ranks_[rank].items; }
  [[nodiscard]] Cost load(std::uint32_t rank) const { return load_after(rank, no_item, no_item); }

  /// Load of `rank` once `out` has left it and `in` has come; each may be no_item.
  [[nodiscard]] Cost load_after(std::uint32_t rank, std::uint32_t out, std::uint32_t in) const {
    Batch sum = ranks_[rank].sum;
    if (out != no_item) {
      sum.units -= items_[out].units;
      sum.packed -= items_[out].packed;
      if (items_[out].longest == sum.longest) sum.longest = ranks_[rank].second_longest;
    }
    if (in != no_item) {
      sum.units += items_[in].units;
      sum.packed += items_[in].packed;
      sum.longest = std::max(sum.longest, items_[in].longest);
    }
    return conv_alpha_ * sum.units * sum.longest + sum.packed;
  }

  /// Whether `out` may go to `to`, and `in`, unless no_item, come back for it.
  [[nodiscard]] bool allowed(std::uint32_t out, std::uint32_t to, std::uint32_t in = no_item) const {
    const Rank& source = ranks_[rank_of_[out]];
    const Rank& target = ranks_[to];
    const Problem::Item nothing{0, 0, 0};
    const Problem::Item& leaves = problem_.items[out];
    const Problem::Item& comes = in == no_item ? nothing : problem_.items[in];
    if (target.weight - comes.weight + leaves.weight > problem_.capacity) return false;
    if (source.weight - leaves.weight + comes.weight > problem_.capacity) return false;
    if (leaves.count == comes.count) return true;
    const std::uint32_t source_count = source.count - leaves.count + comes.count;
    const std::uint32_t target_count = target.count - comes.count + leaves.count;
    if (std::min(source_count, target_count) < problem_.min_count) return false;
    if (std::max(source_count, target_count) > problem_.max_count) return false;
    return at_max_ - full(source.count) - full(target.count) + full(source_count) + full(target_count) <=
           problem_.ranks_at_max;
  }

  void move(std::uint32_t item, std::uint32_t to) {
    remove(item);
    add(item, to);
    rank_of_[item] = to;
  }

 private:
  struct Rank {
    std::vector<std::uint32_t> items;
    Batch sum;
    std::uint64_t second_longest = 0;
    std::uint64_t weight = 0;
    std::uint32_t count = 0;
  };

  [[nodiscard]] std::uint32_t full(std::uint32_t count) const { return count == problem_.max_count ? 1 : 0; }

  static void see(Rank& rank, std::uint64_t longest) {
    rank.second_longest = std::max(rank.second_longest, std::min(longest, rank.sum.longest));
    rank.sum.longest = std::max(rank.sum.longest, longest);
  }

  void add(std::uint32_t item, std::uint32_t to) {
    Rank& rank = ranks_[to];
    place_[item] = static_cast<std::uint32_t>(rank.items.size());
    rank.items.push_back(item);
    see(rank, items_[item].longest);
    rank.sum.units += items_[item].units;
    rank.sum.packed += items_[item].packed;
    at_max_ -= full(rank.count);
    rank.count += problem_.items[item].count;
    rank.weight += problem_.items[item].weight;
    at_max_ += full(rank.count);
  }

  void remove(std::uint32_t item) {
    Rank& rank = ranks_[rank_of_[item]];
    const std::uint32_t last = rank.items.back();
    rank.items[place_[item]] = last;
    place_[last] = place_[item];
    rank.items.pop_back();
    rank.sum.units -= items_[item].units;
    rank.sum.packed -= items_[item].packed;
    at_max_ -= full(rank.count);
    rank.count -= problem_.items[item].count;
    rank.weight -= problem_.items[item].weight;
    at_max_ += full(rank.count);
    if (conv_alpha_ == 0 || items_[item].longest < rank.second_longest) return;
    const std::uint64_t longest_before = rank.sum.longest;
    rank.sum.longest = rank.second_longest = 0;
    for (const std::uint32_t other : rank.items) {
      see(rank, items_[other].longest);
      if (rank.second_longest == longest_before) break;  // nothing is longer
    }
  }

  const Problem& problem_;
  std::span<const Batch> items_;
  Cost conv_alpha_;
  std::vector<std::uint32_t> rank_of_;
  std::vector<std::uint32_t> place_;  ///< item → its place in its rank's items
  std::vector<Rank> ranks_;
  std::uint32_t at_max_ = 0;  ///< ranks that hold max_count samples
};

}  // namespace orch::balance::detail
