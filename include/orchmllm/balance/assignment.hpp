// The result of every balancing solver: which rank processes which sample, with a certificate of its quality.
//
// The certificate is recomputed from the assignment, never carried over from a solver: `rank_cost` is the true cost of
// every rank, `lower_bound` is a proven bound on the largest rank cost of *any* assignment, so the distance to the
// optimum is at most `gap()`. Costs are in the cost model's integer unit.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orchmllm/balance/certificate.hpp"
#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/hash.hpp"

namespace orch {

struct Assignment {
  std::uint32_t ranks = 0;
  std::vector<std::uint32_t> rank_of;  ///< sample → rank
  std::vector<Cost> rank_cost;         ///< recomputed from rank_of
  Cost lower_bound = 0;                ///< proven: no assignment has a smaller largest rank cost
  std::string solver;                  ///< name of the solver that made it

  [[nodiscard]] Cost max_cost() const { return balance::largest(rank_cost); }
  [[nodiscard]] double mean_cost() const { return balance::mean(rank_cost); }
  /// max / mean; 1 where every rank is empty.
  [[nodiscard]] double imbalance() const { return balance::imbalance(rank_cost); }
  /// max / lower bound − 1: at most this far from the optimum; 0 where every rank is empty.
  [[nodiscard]] double gap() const { return balance::gap(max_cost(), lower_bound); }

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
