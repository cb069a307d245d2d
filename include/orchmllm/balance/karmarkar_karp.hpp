// Multiway Karmarkar–Karp (largest differencing method) with compact states, free counts.
//
// Keep partial solutions (states); take the two with the largest spread and merge them, the largest sums of one with
// the smallest of the other, until one is left. A state stores only the sets that hold samples, by descending sum, less
// their common part; sets without samples are implied. Samples of a set are a linked list, so joining two sets is O(1).
// Single samples are never materialised: they wait in sorted order.
// Complexity: O(n log n) merges of O(d) words at most, appending a sample to an open state is O(log d); memory
// 16 bytes a sample in states and 4 in lists: O(n). Guarantee: none beyond the certificate; on data without giants the
// gap is usually far below LPT's, on heavy tails it becomes LPT. Source: Karmarkar and Karp 1982; multiway form as in
// Korf 1998.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/balance/bounds.hpp"
#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/sort.hpp"

namespace orch::balance {

namespace detail {

class Differencing {
 public:
  Differencing(std::span<const Cost> costs, std::span<const std::uint32_t> order, std::uint32_t ranks)
      : costs_(costs), order_(order), ranks_(ranks), next_(costs.size(), none) {}

  std::vector<std::uint32_t> solve() {
    while (waiting() + heap_.size() > 1) {
      State a = take();
      // The next largest is a single sample more often than not: append it without a state of its own.
      if (next_is_single()) {
        add_single(a);
      } else {
        const State b = take();
        a = merge(std::move(a), b);
      }
      a.id = ids_++;
      heap_.push(std::move(a));
    }
    std::vector<std::uint32_t> rank_of(costs_.size());
    if (costs_.empty()) return rank_of;
    const State last = take();
    for (std::uint32_t rank = 0; rank < last.sets.size(); ++rank) {
      for (std::uint32_t sample = last.sets[rank].head; sample != none; sample = next_[sample]) rank_of[sample] = rank;
    }
    return rank_of;
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  struct Set {
    Cost sum = 0;
    std::uint32_t head = none;
    std::uint32_t tail = none;
  };
  struct State {
    std::vector<Set> sets;  ///< by descending sum; at most `ranks`
    Cost spread = 0;
    std::uint64_t id = 0;  ///< among equal spreads the older first
    [[nodiscard]] bool operator<(const State& other) const {
      return spread != other.spread ? spread < other.spread : id > other.id;
    }
  };

  [[nodiscard]] std::size_t waiting() const { return order_.size() - taken_; }
  /// Single samples go before states of equal spread: they are older.
  [[nodiscard]] bool next_is_single() const {
    return waiting() > 0 && (heap_.empty() || costs_[order_[taken_]] >= heap_.top().spread);
  }

  State take() {
    if (next_is_single()) {
      const std::uint32_t sample = order_[taken_++];
      return {{{costs_[sample], sample, sample}}, ranks_ == 1 ? 0 : costs_[sample], 0};
    }
    State state = std::move(const_cast<State&>(heap_.top()));
    heap_.pop();
    return state;
  }

  void add_single(State& state) {
    const std::uint32_t sample = order_[taken_++];
    Set added{costs_[sample], sample, sample};
    if (state.sets.size() == ranks_) {
      added = joined(state.sets.back(), added);
      state.sets.pop_back();
    }
    const auto place = std::upper_bound(state.sets.begin(), state.sets.end(), added,
                                        [](const Set& a, const Set& b) { return a.sum > b.sum; });
    state.sets.insert(place, added);
    normalise(state);
  }

  [[nodiscard]] Set joined(const Set& a, const Set& b) {
    if (a.head == none) return {checked_add(a.sum, b.sum), b.head, b.tail};
    next_[a.tail] = b.head;
    return {checked_add(a.sum, b.sum), a.head, b.tail};
  }

  [[nodiscard]] State merge(State a, const State& b) {
    const std::size_t overlap = a.sets.size() + b.sets.size() > ranks_ ? a.sets.size() + b.sets.size() - ranks_ : 0;
    // The last `overlap` sets of both meet in reverse order; the others meet implied empty ones.
    for (std::size_t i = 0; i < overlap; ++i) {
      Set& set = a.sets[a.sets.size() - 1 - i];
      set = joined(set, b.sets[b.sets.size() - overlap + i]);
    }
    a.sets.insert(a.sets.end(), b.sets.begin(), b.sets.end() - static_cast<std::ptrdiff_t>(overlap));
    std::stable_sort(a.sets.begin(), a.sets.end(), [](const Set& x, const Set& y) { return x.sum > y.sum; });
    normalise(a);
    return a;
  }

  /// Only differences matter: the smallest sum becomes zero.
  void normalise(State& state) const {
    const Cost least = state.sets.size() < ranks_ ? 0 : state.sets.back().sum;
    if (least > 0) {
      for (Set& set : state.sets) set.sum -= least;
    }
    state.spread = state.sets.front().sum;
  }

  std::span<const Cost> costs_;
  std::span<const std::uint32_t> order_;
  std::uint32_t ranks_;
  std::vector<std::uint32_t> next_;  ///< sample → next sample of its set
  std::priority_queue<State> heap_;
  std::size_t taken_ = 0;  ///< samples of the order that have left the waiting line
  std::uint64_t ids_ = 1;
};

}  // namespace detail

[[nodiscard]] inline Assignment karmarkar_karp(std::span<const Cost> costs, std::uint32_t ranks) {
  require_ranks(ranks);
  const std::vector<std::uint32_t> order = descending_order(costs);
  std::vector<std::uint32_t> rank_of = detail::Differencing(costs, order, ranks).solve();
  std::vector<Cost> rank_cost = rank_costs(costs, rank_of, ranks);
  return {ranks, std::move(rank_of), std::move(rank_cost), lower_bound(costs, order, ranks), "karmarkar-karp"};
}

}  // namespace orch::balance
