// Rearrangement Π: how items (samples, or single images and clips) move from one layout over ranks to another.
//
// A layout puts every item on one rank; inside a rank items keep the order of their index. So a layout is a numbering
// of *slots*, rank by rank, and a rearrangement is a permutation of slots together with the slot ranges of the ranks
// before and after. inverse(inverse(Π)) = Π; compose(Π_M, inverse(Π_E)) moves encoder outputs straight from the
// encoder's layout to the LLM's.
// Complexity: O(n + ranks) each. Source: OrchMLLM (arXiv 2503.23830), rearrangement composition.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/base/error.hpp"

namespace orch {

/// Slots of a layout: items rank by rank, inside a rank by index.
struct Layout {
  std::vector<std::uint32_t> first;    ///< rank → its first slot; one more entry than ranks
  std::vector<std::uint32_t> slot_of;  ///< item → slot
  std::vector<std::uint32_t> item_at;  ///< slot → item

  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(first.size() - 1); }
  [[nodiscard]] std::size_t size() const { return slot_of.size(); }

  /// Items of one rank, in order.
  [[nodiscard]] std::span<const std::uint32_t> items(std::uint32_t rank) const {
    return std::span(item_at).subspan(first[rank], first[rank + 1] - first[rank]);
  }

  friend bool operator==(const Layout&, const Layout&) = default;
};

/// Throws InvalidInput for a rank out of range.
[[nodiscard]] inline Layout layout(std::span<const std::uint32_t> rank_of, std::uint32_t ranks) {
  const std::size_t n = rank_of.size();
  Layout result{std::vector<std::uint32_t>(std::size_t{ranks} + 1, 0), std::vector<std::uint32_t>(n),
                std::vector<std::uint32_t>(n)};
  for (std::size_t item = 0; item < n; ++item) {
    if (rank_of[item] >= ranks) {
      throw InvalidInput("item " + std::to_string(item) + " is on rank " + std::to_string(rank_of[item]) +
                         ", but there are " + std::to_string(ranks) + " ranks");
    }
    ++result.first[rank_of[item] + 1];
  }
  std::partial_sum(result.first.begin(), result.first.end(), result.first.begin());
  std::vector<std::uint32_t> next(result.first.begin(), result.first.end() - 1);
  for (std::uint32_t item = 0; item < n; ++item) {
    const std::uint32_t slot = next[rank_of[item]]++;
    result.slot_of[item] = slot;
    result.item_at[slot] = item;
  }
  return result;
}

struct Rearrangement {
  std::vector<std::uint32_t> first_before;  ///< rank → its first slot before; one more entry than ranks
  std::vector<std::uint32_t> first_after;   ///< rank → its first slot after
  std::vector<std::uint32_t> to;            ///< slot before → slot after

  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(first_before.size() - 1); }

  /// Nothing moves, not even inside a rank.
  [[nodiscard]] bool is_identity() const {
    if (first_before != first_after) return false;
    for (std::uint32_t slot = 0; slot < to.size(); ++slot) {
      if (to[slot] != slot) return false;
    }
    return true;
  }

  friend bool operator==(const Rearrangement&, const Rearrangement&) = default;
};

/// Π that takes `before` to `after`, two layouts of the same items over the same number of ranks.
[[nodiscard]] inline Rearrangement rearrangement(const Layout& before, const Layout& after) {
  if (before.size() != after.size() || before.ranks() != after.ranks()) {
    throw InvalidInput("layouts of " + std::to_string(before.size()) + " and " + std::to_string(after.size()) +
                       " items over " + std::to_string(before.ranks()) + " and " + std::to_string(after.ranks()) +
                       " ranks cannot be rearranged into one another");
  }
  Rearrangement result{before.first, after.first, std::vector<std::uint32_t>(before.size())};
  for (std::size_t slot = 0; slot < before.size(); ++slot) result.to[slot] = after.slot_of[before.item_at[slot]];
  return result;
}

[[nodiscard]] inline Rearrangement inverse(const Rearrangement& forward) {
  Rearrangement result{forward.first_after, forward.first_before, std::vector<std::uint32_t>(forward.to.size())};
  for (std::uint32_t slot = 0; slot < forward.to.size(); ++slot) result.to[forward.to[slot]] = slot;
  return result;
}

/// second ∘ first: the layout after `first` must be the layout before `second`.
[[nodiscard]] inline Rearrangement compose(const Rearrangement& second, const Rearrangement& first) {
  if (first.first_after != second.first_before) {
    throw InvalidInput("rearrangements do not fit: the first one does not end in the layout where the second begins");
  }
  Rearrangement result{first.first_before, second.first_after, std::vector<std::uint32_t>(first.to.size())};
  for (std::size_t slot = 0; slot < first.to.size(); ++slot) result.to[slot] = second.to[first.to[slot]];
  return result;
}

}  // namespace orch
