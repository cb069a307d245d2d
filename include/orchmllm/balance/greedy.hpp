// Longest-processing-time-first (LPT) greedy for costs that add up: samples by descending cost, each to the least
// loaded rank.
//
// Complexity: O(n log d) after an O(n) radix sort; 40 bytes a sample. Guarantee: max cost ≤ (4/3 − 1/(3d)) · optimum
// (Graham 1969). Ties go to the lower rank, equal costs in input order: the plan is unique.
//
//   std::vector<orch::Cost> costs{9, 8, 7, 6, 5, 5, 4, 3};
//   const orch::Assignment plan = orch::balance::greedy(costs, 3);
//   // plan.rank_of[sample] → rank, plan.max_cost(), plan.gap()
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/balance/bounds.hpp"
#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/sort.hpp"

namespace orch::balance {

namespace detail {

/// The least of (load, rank) over all ranks, while single loads change: a complete binary tree whose inner nodes hold
/// the smaller of their children. An update walks from leaf to root; which words it reads is known beforehand, so there
/// is no branch to mispredict and no load to wait for.
template <class Word>
class LeastTree {
 public:
  explicit LeastTree(std::uint32_t ranks)
      : leaves_(std::bit_ceil(ranks)), node_(2 * std::size_t{leaves_}, Word::largest()) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) node_[leaves_ + rank] = Word::of(0, rank, leaves_);
    for (std::size_t i = leaves_; i-- > 1;) node_[i] = std::min(node_[2 * i], node_[2 * i + 1]);
  }

  [[nodiscard]] std::uint32_t rank() const { return node_[1].rank(leaves_); }
  [[nodiscard]] Cost load() const { return node_[1].load(leaves_); }

  void update(std::uint32_t rank, Cost load) {
    std::size_t i = leaves_ + rank;
    Word least = Word::of(load, rank, leaves_);
    node_[i] = least;
    for (; i > 1; i /= 2) {
      least = std::min(least, node_[i ^ 1]);
      node_[i / 2] = least;
    }
  }

 private:
  std::size_t leaves_;  ///< a power of two
  std::vector<Word> node_;
};

/// Load and rank in one 64-bit word: load · leaves + rank.
struct PackedLoad {
  Cost word = 0;
  static PackedLoad largest() { return {~Cost{0}}; }
  static PackedLoad of(Cost load, std::uint32_t rank, std::size_t leaves) { return {load * leaves + rank}; }
  [[nodiscard]] std::uint32_t rank(std::size_t leaves) const { return static_cast<std::uint32_t>(word & (leaves - 1)); }
  [[nodiscard]] Cost load(std::size_t leaves) const { return word >> static_cast<unsigned>(std::countr_zero(leaves)); }
  friend auto operator<=>(const PackedLoad&, const PackedLoad&) = default;
};

/// The same for loads that leave no bits for the rank.
struct PairedLoad {
  Cost value = 0;
  std::uint32_t owner = 0;
  static PairedLoad largest() { return {~Cost{0}, ~std::uint32_t{0}}; }
  static PairedLoad of(Cost load, std::uint32_t rank, std::size_t) { return {load, rank}; }
  [[nodiscard]] std::uint32_t rank(std::size_t) const { return owner; }
  [[nodiscard]] Cost load(std::size_t) const { return value; }
  friend auto operator<=>(const PairedLoad&, const PairedLoad&) = default;
};

/// Whether any sum of up to `total` fits beside a rank number.
[[nodiscard]] inline bool packs(Cost total, std::uint32_t ranks) {
  const auto rank_bits = static_cast<unsigned>(std::countr_zero(std::bit_ceil(ranks)));
  return static_cast<unsigned>(std::bit_width(total)) + rank_bits < 64;
}

template <class Word>
[[nodiscard]] std::vector<std::uint32_t> lpt(std::span<const Cost> costs, std::span<const std::uint32_t> order,
                                             std::uint32_t ranks) {
  std::vector<std::uint32_t> rank_of(costs.size());
  LeastTree<Word> least(ranks);
  for (const std::uint32_t sample : order) {
    const std::uint32_t rank = least.rank();
    rank_of[sample] = rank;
    least.update(rank, checked_add(least.load(), costs[sample]));
  }
  return rank_of;
}

[[nodiscard]] inline std::vector<std::uint32_t> lpt(std::span<const Cost> costs, std::span<const std::uint32_t> order,
                                                    std::uint32_t ranks) {
  return packs(checked_sum(costs), ranks) ? lpt<PackedLoad>(costs, order, ranks) : lpt<PairedLoad>(costs, order, ranks);
}

}  // namespace detail

[[nodiscard]] inline Assignment greedy(std::span<const Cost> costs, std::uint32_t ranks) {
  require_ranks(ranks);
  const std::vector<std::uint32_t> order = descending_order(costs);
  std::vector<std::uint32_t> rank_of = detail::lpt(costs, order, ranks);
  std::vector<Cost> rank_cost = rank_costs(costs, rank_of, ranks);
  return {ranks, std::move(rank_of), std::move(rank_cost), lower_bound(costs, order, ranks), "greedy"};
}

}  // namespace orch::balance
