// The result of every balancing solver: which rank processes which sample, with a certificate of its quality.
//
// The certificate is recomputed from the assignment, never carried over from a solver: `rank_cost` is the true cost of
// every rank, `lower_bound` is a proven bound on the largest rank cost of *any* assignment, so the distance to the
// optimum is at most `gap()`. Costs are in the cost model's integer unit.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/hash.hpp"

namespace orch {

struct Assignment {
  std::uint32_t ranks = 0;
  std::vector<std::uint32_t> rank_of;  ///< sample → rank
  std::vector<Cost> rank_cost;         ///< recomputed from rank_of
  Cost lower_bound = 0;                ///< proven: no assignment has a smaller largest rank cost
  std::string_view solver;             ///< name of the solver that made it

  [[nodiscard]] Cost max_cost() const {
    return rank_cost.empty() ? 0 : *std::max_element(rank_cost.begin(), rank_cost.end());
  }

  [[nodiscard]] double mean_cost() const {
    double sum = 0;
    for (const Cost cost : rank_cost) sum += static_cast<double>(cost);
    return rank_cost.empty() ? 0 : sum / static_cast<double>(rank_cost.size());
  }

  /// max / mean; 1 where every rank is empty.
  [[nodiscard]] double imbalance() const {
    const double mean = mean_cost();
    return mean > 0 ? static_cast<double>(max_cost()) / mean : 1.0;
  }

  /// max / lower bound − 1: at most this far from the optimum; 0 where every rank is empty.
  [[nodiscard]] double gap() const {
    if (lower_bound == 0) return max_cost() == 0 ? 0.0 : std::numeric_limits<double>::infinity();
    return static_cast<double>(max_cost() - lower_bound) / static_cast<double>(lower_bound);
  }

  /// Equal on two machines exactly if both hold the same assignment.
  [[nodiscard]] std::uint64_t fingerprint() const {
    return Fingerprint().add(ranks).add_all(std::span<const std::uint32_t>(rank_of)).value();
  }
};

namespace balance {

/// Throws InvalidInput where no assignment can exist.
inline void require_ranks(std::uint32_t ranks) {
  if (ranks == 0) throw InvalidInput("ranks = 0: at least one rank is needed");
}

/// Cost of every rank where costs add up. Throws Overflow, and InvalidInput for a rank out of range.
[[nodiscard]] inline std::vector<Cost> rank_costs(std::span<const Cost> costs, std::span<const std::uint32_t> rank_of,
                                                  std::uint32_t ranks) {
  std::vector<Cost> sums(ranks, 0);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (rank_of[i] >= ranks) {
      throw InvalidInput("sample " + std::to_string(i) + " is on rank " + std::to_string(rank_of[i]) + " of " +
                         std::to_string(ranks));
    }
    sums[rank_of[i]] = checked_add(sums[rank_of[i]], costs[i]);
  }
  return sums;
}

}  // namespace balance

}  // namespace orch
