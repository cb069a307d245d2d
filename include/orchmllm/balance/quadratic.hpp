// The published greedy for quadratic costs α·l + β·l²: compare linear sums within a tolerance, then squared sums.
//
// Samples by descending length, each to the rank whose sum of lengths is smallest; among ranks whose sum is within
// `tolerance` of that, to the one with the smallest sum of squares. It balances two sums at once without weighing them;
// LPT on the cost itself (greedy.hpp) is flatter wherever α and β are known.
// Complexity: O(n · d): every rank may be within the tolerance. Guarantee: none beyond the certificate.
// Source: OrchMLLM (arXiv 2503.23830), batch post-balancing, quadratic case.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/balance/bounds.hpp"
#include "orchmllm/base/sort.hpp"
#include "orchmllm/cost/packed.hpp"

namespace orch::balance {

/// `tolerance` in units of length. Throws Overflow.
[[nodiscard]] inline Assignment quadratic(std::span<const std::uint64_t> lengths, std::uint32_t ranks,
                                          const PackedCost& cost, std::uint64_t tolerance) {
  require_ranks(ranks);
  std::vector<std::uint32_t> rank_of(lengths.size());
  std::vector<std::uint64_t> sum(ranks, 0);
  std::vector<std::uint64_t> squares(ranks, 0);
  for (const std::uint32_t sample : descending_order(lengths)) {
    const std::uint64_t limit = checked_add(*std::min_element(sum.begin(), sum.end()), tolerance);
    std::uint32_t best = ranks;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (sum[rank] <= limit && (best == ranks || squares[rank] < squares[best])) best = rank;
    }
    rank_of[sample] = best;
    sum[best] = checked_add(sum[best], lengths[sample]);
    squares[best] = checked_add(squares[best], checked_mul(lengths[sample], lengths[sample]));
  }
  std::vector<Cost> costs(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) costs[i] = cost(lengths[i]);
  std::vector<Cost> rank_cost = rank_costs(costs, rank_of, ranks);
  return {ranks, std::move(rank_of), std::move(rank_cost), lower_bound(costs, descending_order(costs), ranks),
          "quadratic"};
}

}  // namespace orch::balance
