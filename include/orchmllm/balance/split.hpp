// Splitting: samples above a fair share of the step are spread over context-parallel groups of ranks, the rest is
// balanced around them.
//
// With quadratic costs on thousands of ranks one long sample alone can exceed the mean rank cost several times; no
// assignment of whole samples helps. A group is a power of two of consecutive ranks of one node, aligned to its own
// size. A split sample is padded to a multiple of 2 · group · tensor_parallel tokens and cut into 2 · group equal
// chunks; member i gets chunks i and 2 · group − 1 − i (zig-zag). Causal attention up to token t costs β·t², so chunk c
// of s tokens costs β·s²·(2c + 1), and every pair sums to the same 4 · group · β·s²: members are exactly equal, in the
// linear part, too.
//
// Units: lengths in tokens (one unit a sample), costs in the cost model's unit; every member pays γ once. The exchange
// of keys and values inside a group is not part of the cost. Complexity: O(n log ranks + s · ranks) for s split
// samples, times at most three thresholds. Guarantee: `lower_bound` holds for every plan, whatever it splits (inside
// one node); rank costs are recomputed from the chunks. Ties go to the lower rank: the plan is unique.
//
//   const auto plan = orch::balance::split(lengths, 2560, {.alpha = 24576, .beta = 1}, {.ranks_per_node = 8});
//   // plan.splits[i].sample, .first_rank, .group, .chunks; plan.rank_of[sample] or SplitPlan::is_split
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/balance/greedy_onto.hpp"
#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/hash.hpp"
#include "orchmllm/base/sort.hpp"
#include "orchmllm/cost/packed.hpp"

namespace orch {

struct SplitOptions {
  std::uint32_t ranks_per_node = 8;   ///< ranks r with equal r / ranks_per_node share a node
  std::uint32_t tensor_parallel = 1;  ///< padded lengths are multiples of 2 · group · tensor_parallel
  std::uint32_t largest_group = 0;    ///< ranks, rounded down to a power of two; 0 = as many as a node has
  /// A sample is split where it costs more than this share of the mean rank cost, into groups whose members cost at
  /// most that share. Half and a quarter of it are tried as well where the gap stays above `tolerance_permille`.
  std::uint32_t threshold_percent = 100;
  std::uint32_t tolerance_permille = 5;
};

/// Tokens [begin, end) of a padded sample.
struct TokenRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t size() const { return end - begin; }
  [[nodiscard]] bool operator==(const TokenRange&) const = default;
};

struct SplitSample {
  std::uint32_t sample = 0;
  std::uint32_t first_rank = 0;
  std::uint32_t group = 0;                        ///< number of ranks, a power of two
  std::uint64_t padded_length = 0;                ///< tokens
  std::uint64_t pad = 0;                          ///< tokens of padding, at the end
  Cost member_cost = 0;                           ///< on each of the group's ranks
  std::vector<std::array<TokenRange, 2>> chunks;  ///< [member]: rank first_rank + member
};

struct SplitPlan {
  static constexpr std::uint32_t is_split = std::numeric_limits<std::uint32_t>::max();

  std::uint32_t ranks = 0;
  std::vector<std::uint32_t> rank_of;  ///< sample → rank, or is_split
  std::vector<SplitSample> splits;     ///< by descending group, then cost
  std::vector<Cost> rank_cost;         ///< recomputed from rank_of and the chunks
  Cost lower_bound = 0;                ///< proven: no plan, with any splits inside nodes, has a smaller largest cost
  Cost whole_lower_bound = 0;          ///< the same for plans that split nothing: what splitting is up against

  [[nodiscard]] Cost max_cost() const { return balance::largest(rank_cost); }
  [[nodiscard]] double mean_cost() const { return balance::mean(rank_cost); }
  /// max / mean, padding included; 1 where every rank is empty.
  [[nodiscard]] double imbalance() const { return balance::imbalance(rank_cost); }
  /// max / lower bound − 1: at most this far from the optimum; 0 where every rank is empty.
  [[nodiscard]] double gap() const { return balance::gap(max_cost(), lower_bound); }

  /// Equal on two machines exactly if both hold the same plan.
  [[nodiscard]] std::uint64_t fingerprint() const {
    Fingerprint print;
    print.add(ranks).add_all(std::span<const std::uint32_t>(rank_of)).add(splits.size());
    for (const SplitSample& split : splits) {
      print.add(split.sample).add(split.first_rank).add(split.group).add(split.padded_length);
    }
    return print.value();
  }
};

namespace balance {

/// Length of a sample that `group` ranks share.
[[nodiscard]] inline std::uint64_t padded_split_length(std::uint64_t length, std::uint32_t group,
                                                       std::uint32_t tensor_parallel) {
  const std::uint64_t step = checked_mul(std::uint64_t{2} * group, tensor_parallel);
  return checked_mul(ceil_div(length, step), step);
}

/// The two chunks of a member, in token order. `padded_length` is a multiple of 2 · group.
[[nodiscard]] inline std::array<TokenRange, 2> zigzag_chunks(std::uint64_t padded_length, std::uint32_t group,
                                                             std::uint32_t member) {
  const std::uint64_t size = padded_length / (std::uint64_t{2} * group);
  const std::uint64_t late = std::uint64_t{2} * group - 1 - member;
  return {{{member * size, (member + 1) * size}, {late * size, (late + 1) * size}}};
}

/// Cost of two chunks of one sample: causal attention up to token t costs β·t².
[[nodiscard]] inline Cost chunks_cost(const std::array<TokenRange, 2>& chunks, const PackedCost& cost) {
  Cost sum = cost.gamma;
  for (const TokenRange& chunk : chunks) {
    sum = checked_add(sum, checked_mul(cost.alpha, chunk.size()));
    if (cost.beta == 0) continue;
    // end² − begin² as a product, so that only the result must fit.
    sum = checked_add(sum, checked_mul(cost.beta, checked_mul(chunk.size(), checked_add(chunk.begin, chunk.end))));
  }
  return sum;
}

/// Cost of every rank, from where samples and chunks are. Throws Overflow.
[[nodiscard]] inline std::vector<Cost> split_rank_costs(std::span<const std::uint64_t> lengths, const SplitPlan& plan,
                                                        const PackedCost& cost) {
  std::vector<Cost> sums(plan.ranks, 0);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (plan.rank_of[i] == SplitPlan::is_split) continue;
    sums[plan.rank_of[i]] = checked_add(sums[plan.rank_of[i]], cost(lengths[i]));
  }
  for (const SplitSample& split : plan.splits) {
    for (std::uint32_t member = 0; member < split.group; ++member) {
      Cost& sum = sums[split.first_rank + member];
      sum = checked_add(sum, chunks_cost(split.chunks[member], cost));
    }
  }
  return sums;
}

namespace detail {

/// ⌊cost · part / whole⌋ without the overflow of the product where the result fits.
[[nodiscard]] inline Cost share_of(Cost cost, std::uint32_t part, std::uint32_t whole) {
  return checked_add(checked_mul(cost / whole, part), cost % whole * part / whole);
}

/// What a sample costs each of `group` ranks that share it.
[[nodiscard]] inline Cost member_cost(std::uint64_t length, std::uint32_t group, std::uint32_t tensor_parallel,
                                      const PackedCost& cost) {
  if (group == 1) return cost(length);
  return chunks_cost(zigzag_chunks(padded_split_length(length, group, tensor_parallel), group, 0), cost);
}

/// The aligned group of `size` ranks inside one node whose most loaded rank has least.
[[nodiscard]] inline std::uint32_t least_loaded_group(std::span<const Cost> loads, std::uint32_t size,
                                                      std::uint32_t ranks_per_node) {
  std::uint32_t best = 0;
  Cost best_load = std::numeric_limits<Cost>::max();
  const auto ranks = static_cast<std::uint32_t>(loads.size());
  for (std::uint64_t node = 0; node < ranks; node += ranks_per_node) {
    const std::uint64_t end = std::min<std::uint64_t>(ranks, node + ranks_per_node);
    for (std::uint64_t first = node; first + size <= end; first += size) {
      Cost load = 0;
      for (std::uint64_t rank = first; rank < first + size; ++rank) load = std::max(load, loads[rank]);
      if (load >= best_load) continue;
      best_load = load;
      best = static_cast<std::uint32_t>(first);
    }
  }
  return best;
}

/// Splits every sample whose cost is above `share`, places the groups, and balances the rest around them.
[[nodiscard]] inline SplitPlan split_above(std::span<const std::uint64_t> lengths, std::span<const Cost> costs,
                                           std::uint32_t ranks, const PackedCost& cost, const SplitOptions& options,
                                           std::uint32_t largest_group, Cost share) {
  SplitPlan plan;
  plan.ranks = ranks;
  plan.rank_of.assign(costs.size(), 0);
  std::vector<std::uint32_t> whole;
  std::vector<Cost> whole_cost;
  for (std::uint32_t sample = 0; sample < costs.size(); ++sample) {
    std::uint32_t group = 1;
    Cost least = costs[sample];
    // A larger group that costs its members more (padding of a short sample) is of no use.
    for (std::uint32_t size = 2; size <= largest_group && least > share; size *= 2) {
      const Cost member = member_cost(lengths[sample], size, options.tensor_parallel, cost);
      if (member >= least) continue;
      least = member;
      group = size;
    }
    if (group == 1) {
      whole.push_back(sample);
      whole_cost.push_back(costs[sample]);
      continue;
    }
    const std::uint64_t padded = padded_split_length(lengths[sample], group, options.tensor_parallel);
    plan.rank_of[sample] = SplitPlan::is_split;
    plan.splits.push_back({sample, 0, group, padded, padded - lengths[sample], least, {}});
  }
  // Large groups first: they need whole nodes; then long samples first, in input order.
  std::stable_sort(plan.splits.begin(), plan.splits.end(), [](const SplitSample& a, const SplitSample& b) {
    return a.group != b.group ? a.group > b.group : a.member_cost > b.member_cost;
  });
  std::vector<Cost> loads(ranks, 0);
  for (SplitSample& split : plan.splits) {
    split.first_rank = least_loaded_group(loads, split.group, options.ranks_per_node);
    for (std::uint32_t member = 0; member < split.group; ++member) {
      split.chunks.push_back(zigzag_chunks(split.padded_length, split.group, member));
      Cost& load = loads[split.first_rank + member];
      load = checked_add(load, split.member_cost);
    }
  }
  const std::vector<std::uint32_t> rank_of = greedy_onto(whole_cost, loads);
  for (std::size_t i = 0; i < whole.size(); ++i) plan.rank_of[whole[i]] = rank_of[i];
  plan.rank_cost = split_rank_costs(lengths, plan, cost);
  return plan;
}

inline void require_split_input(std::uint32_t ranks, const PackedCost& cost, const SplitOptions& options) {
  require_ranks(ranks);
  if (options.ranks_per_node == 0) throw InvalidInput("ranks_per_node = 0: a node has at least one rank");
  if (options.tensor_parallel == 0) throw InvalidInput("tensor_parallel = 0: at least 1 is needed");
  if (options.threshold_percent == 0) throw InvalidInput("threshold_percent = 0: every sample would be split");
  if (cost.attention_span != 0) {
    throw InvalidInput("attention_span = " + std::to_string(cost.attention_span) +
                       ": zig-zag chunks are equal for causal attention over the whole sample only");
  }
}

}  // namespace detail

/// Plans splits and the assignment around them; `lengths` are whole samples of the phase with causal attention.
/// Throws InvalidInput for options that make no sense, Overflow.
[[nodiscard]] inline SplitPlan split(std::span<const std::uint64_t> lengths, std::uint32_t ranks,
                                     const PackedCost& cost, const SplitOptions& options = {}) {
  detail::require_split_input(ranks, cost, options);
  (void)sample_count(lengths.size());
  std::vector<Cost> costs(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) costs[i] = cost(lengths[i]);

  std::uint32_t largest_group = std::bit_floor(std::min(options.ranks_per_node, ranks));
  if (options.largest_group != 0) largest_group = std::min(largest_group, std::bit_floor(options.largest_group));

  // Padding and γ only add to a sample that is split, so the mean of whole samples bounds every plan; so does the least
  // that the group of any sample can cost its members.
  const Cost mean = ceil_div(checked_sum(costs), ranks);
  Cost bound = mean;
  Cost longest = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    longest = std::max(longest, costs[i]);
    Cost least = costs[i];
    for (std::uint32_t size = 2; size <= largest_group && least > bound; size *= 2) {
      least = std::min(least, detail::member_cost(lengths[i], size, options.tensor_parallel, cost));
    }
    bound = std::max(bound, least);
  }

  const Cost good = checked_add(bound, detail::share_of(bound, options.tolerance_permille, 1000));
  SplitPlan best;
  for (const std::uint32_t part : {1U, 2U, 4U}) {
    const Cost share = detail::share_of(mean, options.threshold_percent, 100) / part;
    SplitPlan plan = detail::split_above(lengths, costs, ranks, cost, options, largest_group, share);
    if (part == 1 || plan.max_cost() < best.max_cost()) best = std::move(plan);
    if (best.max_cost() <= good) break;
  }
  best.lower_bound = bound;
  best.whole_lower_bound = std::max(mean, longest);
  return best;
}

}  // namespace balance

}  // namespace orch
