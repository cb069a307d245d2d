// Greedy solver for convolution + packed costs α_c · b · m + Σ (γ + α·l + β·l²).
//
// Samples by descending longest unit (then packed cost), each to the rank whose cost is smallest so far. In that order
// a rank's longest unit is fixed by its first sample, so its convolution part grows only with its count.
// Without padding (α_c = 0) the order is by cost alone, which is LPT with its guarantee.
// Complexity: O(n log d) after two O(n) radix sorts. Guarantee: with padding none beyond the certificate. The lower
// bound charges every sample its own padding α_c · units · longest, which no batch can undercut: then costs add up.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/balance/bounds.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/base/sort.hpp"
#include "orchmllm/cost/conv_packed.hpp"

namespace orch::balance {

/// Cost of every rank under the convolution + packed cost.
[[nodiscard]] inline std::vector<Cost> conv_packed_rank_costs(std::span<const ConvPackedCost::Batch> samples,
                                                              std::span<const std::uint32_t> rank_of,
                                                              std::uint32_t ranks, const ConvPackedCost& cost) {
  std::vector<ConvPackedCost::Batch> batches(ranks);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    batches[rank_of[i]] = ConvPackedCost::merge(batches[rank_of[i]], samples[i]);
  }
  std::vector<Cost> costs(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) costs[rank] = cost(batches[rank]);
  return costs;
}

[[nodiscard]] inline Assignment conv_packed(std::span<const ConvPackedCost::Batch> samples, std::uint32_t ranks,
                                            const ConvPackedCost& cost) {
  require_ranks(ranks);
  std::vector<Cost> alone(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) alone[i] = cost(samples[i]);
  const std::vector<std::uint32_t> by_cost = descending_order(alone);

  std::vector<std::uint32_t> order = by_cost;
  if (cost.conv_alpha != 0) {
    // Stable sorts compose: by cost first, then by longest unit.
    std::vector<Cost> longest(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) longest[i] = samples[by_cost[i]].longest;
    const std::vector<std::uint32_t> by_longest = descending_order(longest);
    for (std::size_t i = 0; i < samples.size(); ++i) order[i] = by_cost[by_longest[i]];
  }

  std::vector<std::uint32_t> rank_of(samples.size());
  std::vector<ConvPackedCost::Batch> batches(ranks);
  detail::LeastTree<detail::PairedLoad> least(ranks);
  for (const std::uint32_t sample : order) {
    const std::uint32_t rank = least.rank();
    rank_of[sample] = rank;
    batches[rank] = ConvPackedCost::merge(batches[rank], samples[sample]);
    least.update(rank, cost(batches[rank]));
  }
  std::vector<Cost> rank_cost = conv_packed_rank_costs(samples, rank_of, ranks, cost);
  return {ranks, std::move(rank_of), std::move(rank_cost), lower_bound(alone, by_cost, ranks), "conv-packed-greedy"};
}

}  // namespace orch::balance
