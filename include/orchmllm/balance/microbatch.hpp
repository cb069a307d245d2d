// Micro-batch planner: from a global batch to the same number K of micro-batches on every rank.
//
// Every micro-batch ends in a synchronisation, so a step costs Σ over micro-batches of the largest rank cost: that sum
// is minimised, not only the balance of the whole step. Tokens of a micro-batch never exceed `token_cap`; K is the
// smallest multiple of `multiple_of` for which a packing is found; no micro-batch is empty as long as there are enough
// samples, and those that must be are listed as `dummies`, so that every rank still takes part in every collective.
//
//   may_move = false  samples stay on their home ranks: only the order and the packs are planned
//   may_move = true   ranks are planned as well; a dummy remains only where there are fewer than K · ranks samples
//
// Units: costs in the cost model's unit, tokens as given (the capped quantity, usually tokens → memory).
// Method: the pace of each micro-batch is set first (long samples share micro-batches, so that they are waited for
// once), then the rest fills all micro-batches to their pace, longest first (greedy_onto.hpp); packs are grouped in
// descending order, which is optimal for given packs; then samples are moved and swapped out of the slowest packs.
// Where the cap is too tight for that, first fit decreasing by tokens decides, and for up to 40 samples a bounded
// exhaustive search. Complexity: O(n log n + n log(K · ranks)) and a bounded number of refinement steps.
// Guarantee: K is proven smallest where `smallest_proven`; `lower_bound` holds for every plan with this K, this cap and
// no more dummies than necessary. Integers and total orders only: the plan is unique.
//
//   const auto plan = orch::balance::microbatches(costs, tokens, home, 8, {.token_cap = 16384});
//   // plan.microbatches, plan.microbatch_of[sample], plan.rank_of[sample], plan.step_cost(), plan.gap()
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/balance/bins_bound.hpp"
#include "orchmllm/balance/bounds.hpp"
#include "orchmllm/balance/detail/microbatch_packing.hpp"
#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/hash.hpp"
#include "orchmllm/base/sort.hpp"

namespace orch {

/// Order in which all ranks run the micro-batches.
enum class MicrobatchOrder {
  longest_first,     ///< the one that needs most memory fails first, if any
  shortest_at_ends,  ///< a pipeline fills and drains with its shortest micro-batches
};

struct MicrobatchOptions {
  std::uint64_t token_cap = std::numeric_limits<std::uint64_t>::max();  ///< tokens of one micro-batch on one rank
  std::uint32_t multiple_of = 1;                                        ///< pipeline group: K is a multiple of it
  std::uint32_t at_least = 1;                                           ///< smallest K wanted, e.g. pipeline stages
  bool may_move = false;                                                ///< false: samples stay on their home ranks
  MicrobatchOrder order = MicrobatchOrder::longest_first;
};

/// A micro-batch of one rank, e.g. one without samples.
struct MicrobatchSlot {
  std::uint32_t microbatch = 0;
  std::uint32_t rank = 0;
  [[nodiscard]] bool operator==(const MicrobatchSlot&) const = default;
};

struct MicrobatchPlan {
  std::uint32_t ranks = 0;
  std::uint32_t microbatches = 0;            ///< K, on every rank
  std::vector<std::uint32_t> rank_of;        ///< sample → rank
  std::vector<std::uint32_t> microbatch_of;  ///< sample → micro-batch
  std::vector<Cost> cost;                    ///< recomputed: [microbatch · ranks + rank]
  std::vector<std::uint64_t> tokens;         ///< recomputed: [microbatch · ranks + rank]
  std::vector<MicrobatchSlot> dummies;       ///< slots without a sample: run a placeholder with zero loss
  Cost lower_bound = 0;                      ///< proven: no plan with this K has a smaller step_cost()
  std::uint32_t microbatches_bound = 0;      ///< proven: no plan has fewer micro-batches
  bool smallest_proven = false;              ///< K equals that bound

  [[nodiscard]] Cost slowest(std::uint32_t microbatch) const {
    const auto first = cost.begin() + static_cast<std::ptrdiff_t>(std::size_t{microbatch} * ranks);
    return *std::max_element(first, first + ranks);
  }

  /// Σ over micro-batches of the largest rank cost: what the step waits for.
  [[nodiscard]] Cost step_cost() const {
    Cost sum = 0;
    for (std::uint32_t microbatch = 0; microbatch < microbatches; ++microbatch) {
      sum = checked_add(sum, slowest(microbatch));
    }
    return sum;
  }

  /// Cost of every rank over the whole step.
  [[nodiscard]] std::vector<Cost> rank_cost() const {
    std::vector<Cost> sums(ranks, 0);
    for (std::size_t slot = 0; slot < cost.size(); ++slot) {
      sums[slot % ranks] = checked_add(sums[slot % ranks], cost[slot]);
    }
    return sums;
  }

  /// step cost / mean rank cost: 1 where no rank ever waits.
  [[nodiscard]] double imbalance() const {
    double sum = 0;
    for (const Cost slot : cost) sum += static_cast<double>(slot);
    return sum > 0 ? static_cast<double>(step_cost()) * ranks / sum : 1.0;
  }

  /// step cost / lower bound − 1: at most this far from the optimum for this K.
  [[nodiscard]] double gap() const { return balance::gap(step_cost(), lower_bound); }

  [[nodiscard]] std::uint64_t max_tokens() const {
    return tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
  }

  /// Equal on two machines exactly if both hold the same plan.
  [[nodiscard]] std::uint64_t fingerprint() const {
    return Fingerprint()
        .add(ranks)
        .add(microbatches)
        .add_all(std::span<const std::uint32_t>(rank_of))
        .add_all(std::span<const std::uint32_t>(microbatch_of))
        .value();
  }
};

namespace balance {

namespace detail {

/// Positions of micro-batches that are sorted by descending cost.
[[nodiscard]] inline std::vector<std::uint32_t> microbatch_positions(std::uint32_t microbatches,
                                                                     MicrobatchOrder order) {
  std::vector<std::uint32_t> position(microbatches);
  std::iota(position.begin(), position.end(), 0U);
  if (order == MicrobatchOrder::longest_first) return position;
  std::uint32_t front = 0;
  std::uint32_t back = microbatches;
  for (std::uint32_t shortest = 0; shortest < microbatches; ++shortest) {
    position[microbatches - 1 - shortest] = shortest % 2 == 0 ? front++ : --back;
  }
  return position;
}

inline void require_microbatch_input(std::span<const Cost> costs, std::span<const std::uint64_t> tokens,
                                     std::span<const std::uint32_t> home, std::uint32_t ranks,
                                     const MicrobatchOptions& options) {
  require_ranks(ranks);
  (void)sample_count(costs.size());
  if (tokens.size() != costs.size() || home.size() != costs.size()) {
    throw InvalidInput("costs, tokens and home ranks differ in number: " + std::to_string(costs.size()) + ", " +
                       std::to_string(tokens.size()) + ", " + std::to_string(home.size()));
  }
  if (options.multiple_of == 0) throw InvalidInput("multiple_of = 0: the number of micro-batches needs a divisor");
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (home[i] >= ranks) {
      throw InvalidInput("sample " + std::to_string(i) + " is at home on rank " + std::to_string(home[i]) + " of " +
                         std::to_string(ranks));
    }
  }
  // The smallest cap that would do for every sample is the most tokens of one.
  const auto most = std::max_element(tokens.begin(), tokens.end());
  if (most != tokens.end() && *most > options.token_cap) {
    throw Infeasible("sample " + std::to_string(most - tokens.begin()) + " has " + std::to_string(*most) +
                     " tokens, above the cap of " + std::to_string(options.token_cap) +
                     " tokens a micro-batch; the smallest cap that would do is " + std::to_string(*most));
  }
}

/// Rounds up to a multiple. Throws InvalidInput where all slots together pass 32 bits.
[[nodiscard]] inline std::uint32_t round_up_microbatches(std::uint64_t microbatches, std::uint32_t multiple_of,
                                                         std::uint32_t ranks) {
  const std::uint64_t rounded =
      checked_mul(ceil_div(std::max<std::uint64_t>(microbatches, 1), multiple_of), multiple_of);
  if (checked_mul(rounded, ranks) > std::numeric_limits<std::uint32_t>::max()) {
    throw InvalidInput(std::to_string(rounded) + " micro-batches on " + std::to_string(ranks) +
                       " ranks are more than 4294967295 slots");
  }
  return static_cast<std::uint32_t>(rounded);
}

/// Recomputes costs and tokens of every slot, and lists the slots without a sample.
inline void certify(MicrobatchPlan& plan, std::span<const Cost> costs, std::span<const std::uint64_t> tokens) {
  const std::size_t slots = std::size_t{plan.microbatches} * plan.ranks;
  plan.cost.assign(slots, 0);
  plan.tokens.assign(slots, 0);
  std::vector<bool> used(slots, false);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const std::size_t slot = std::size_t{plan.microbatch_of[i]} * plan.ranks + plan.rank_of[i];
    plan.cost[slot] = checked_add(plan.cost[slot], costs[i]);
    plan.tokens[slot] = checked_add(plan.tokens[slot], tokens[i]);
    used[slot] = true;
  }
  for (std::size_t slot = 0; slot < slots; ++slot) {
    if (!used[slot]) {
      plan.dummies.push_back(
          {static_cast<std::uint32_t>(slot / plan.ranks), static_cast<std::uint32_t>(slot % plan.ranks)});
    }
  }
}

struct Packing {
  std::uint32_t microbatches = 0;
  std::uint32_t bound = 0;                          ///< proven: no packing has fewer micro-batches
  std::vector<std::vector<std::uint32_t>> slot_of;  ///< group → position in by_cost → microbatch · width + bin
};

/// Fewest micro-batches for which every group is packed. In the end one is found: one sample a slot always fits.
[[nodiscard]] inline Packing fewest_microbatches(const PackInput& in, std::span<const PackGroup> groups,
                                                 std::uint32_t ranks, const MicrobatchOptions& options) {
  std::uint64_t needed = options.at_least;
  for (const PackGroup& group : groups) {
    needed = std::max(needed, ceil_div(bins_bound(in.tokens, group.by_tokens, in.cap), in.width));
  }
  Packing packing;
  packing.microbatches = packing.bound = round_up_microbatches(needed, options.multiple_of, ranks);
  packing.slot_of.resize(groups.size());
  for (bool proven = true;;) {
    const Pace pace = set_pace(in, groups, packing.microbatches);
    Fit worst = Fit::found;
    for (std::size_t g = 0; g < groups.size() && worst != Fit::impossible; ++g) {
      Fit fit = Fit::found;
      std::tie(fit, packing.slot_of[g]) = pack_group(in, groups[g], pace);
      if (fit != Fit::found) worst = fit;
    }
    if (worst == Fit::found) return packing;
    packing.microbatches = round_up_microbatches(std::uint64_t{packing.microbatches} + 1, options.multiple_of, ranks);
    proven = proven && worst == Fit::impossible;
    if (proven) packing.bound = packing.microbatches;
  }
}

/// packs[microbatch · ranks + rank], each group in descending order of cost: the best cut for given packs, because a
/// sum of maxima is smallest where all ranks are sorted alike.
[[nodiscard]] inline std::vector<Pack> group_packs(const PackInput& in, std::span<const PackGroup> groups,
                                                   const Packing& packing, std::uint32_t ranks) {
  std::vector<Pack> packs(std::size_t{packing.microbatches} * ranks);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<Pack> own(std::size_t{packing.microbatches} * in.width);
    for (std::size_t i = 0; i < packing.slot_of[g].size(); ++i) {
      const std::uint32_t sample = groups[g].by_cost[i];
      Pack& pack = own[packing.slot_of[g][i]];
      pack.samples.push_back(sample);
      pack.cost = checked_add(pack.cost, in.costs[sample]);
      pack.tokens += in.tokens[sample];
    }
    fill_empty(in, own);
    std::vector<Cost> pack_cost(own.size());
    for (std::size_t p = 0; p < own.size(); ++p) pack_cost[p] = own[p].cost;
    const std::vector<std::uint32_t> descending = descending_order(pack_cost);
    for (std::size_t p = 0; p < own.size(); ++p) {
      const std::size_t row = p / in.width;
      const std::size_t column = groups.size() == 1 ? p % in.width : g;
      packs[row * ranks + column] = std::move(own[descending[p]]);
    }
  }
  return packs;
}

/// Micro-batches by their slowest rank, in the order asked for. Where ranks are free, the most expensive pack of a
/// micro-batch goes to the rank with the least so far, so that the whole step is even, too.
inline void lay_out(MicrobatchPlan& plan, std::span<const Pack> packs, const MicrobatchOptions& options) {
  std::vector<Cost> slowest(plan.microbatches, 0);
  for (std::size_t slot = 0; slot < packs.size(); ++slot) {
    slowest[slot / plan.ranks] = std::max(slowest[slot / plan.ranks], packs[slot].cost);
  }
  const std::vector<std::uint32_t> by_slowest = descending_order(slowest);
  const std::vector<std::uint32_t> position = microbatch_positions(plan.microbatches, options.order);
  std::vector<Cost> so_far(plan.ranks, 0);
  std::vector<Cost> pack_cost(plan.ranks);
  std::vector<std::uint32_t> rank_of_pack(plan.ranks);
  std::iota(rank_of_pack.begin(), rank_of_pack.end(), 0U);
  for (std::uint32_t k = 0; k < plan.microbatches; ++k) {
    const auto row = packs.subspan(std::size_t{by_slowest[k]} * plan.ranks, plan.ranks);
    if (options.may_move) {
      for (std::uint32_t p = 0; p < plan.ranks; ++p) pack_cost[p] = row[p].cost;
      const std::vector<std::uint32_t> expensive_first = descending_order(pack_cost);
      const std::vector<std::uint32_t> most_first = descending_order(so_far);
      for (std::uint32_t p = 0; p < plan.ranks; ++p) rank_of_pack[expensive_first[p]] = most_first[plan.ranks - 1 - p];
    }
    for (std::uint32_t p = 0; p < plan.ranks; ++p) {
      so_far[rank_of_pack[p]] = checked_add(so_far[rank_of_pack[p]], row[p].cost);
      for (const std::uint32_t sample : row[p].samples) {
        plan.rank_of[sample] = rank_of_pack[p];
        plan.microbatch_of[sample] = position[k];
      }
    }
  }
}

}  // namespace detail

/// Plans the micro-batches of a step. `home[sample]` is where the sampler put it, or where an earlier plan did.
/// Throws Infeasible where one sample is above the cap, InvalidInput for inputs that do not fit together, Overflow.
[[nodiscard]] inline MicrobatchPlan microbatches(std::span<const Cost> costs, std::span<const std::uint64_t> tokens,
                                                 std::span<const std::uint32_t> home, std::uint32_t ranks,
                                                 const MicrobatchOptions& options = {}) {
  detail::require_microbatch_input(costs, tokens, home, ranks, options);
  const std::vector<std::uint32_t> by_cost = descending_order(costs);
  const detail::PackInput in{costs, tokens, options.token_cap, options.may_move ? ranks : 1};
  std::vector<detail::PackGroup> groups(options.may_move ? 1 : ranks);
  const auto group_of = [&](std::uint32_t sample) { return options.may_move ? 0 : home[sample]; };
  for (const std::uint32_t sample : by_cost) groups[group_of(sample)].by_cost.push_back(sample);
  for (const std::uint32_t sample : descending_order(tokens)) groups[group_of(sample)].by_tokens.push_back(sample);

  const detail::Packing packing = detail::fewest_microbatches(in, groups, ranks, options);
  std::vector<detail::Pack> packs = detail::group_packs(in, groups, packing, ranks);
  detail::MicrobatchRefiner(in, packs, ranks, options.may_move).run();

  MicrobatchPlan plan;
  plan.ranks = ranks;
  plan.microbatches = packing.microbatches;
  plan.microbatches_bound = packing.bound;
  plan.smallest_proven = packing.bound == packing.microbatches;
  plan.rank_of.assign(costs.size(), 0);
  plan.microbatch_of.assign(costs.size(), 0);
  detail::lay_out(plan, packs, options);
  detail::certify(plan, costs, tokens);
  plan.lower_bound = detail::step_bound(in, groups, plan.microbatches);
  if (options.may_move) plan.lower_bound = std::max(plan.lower_bound, lower_bound(costs, by_cost, ranks));
  return plan;
}

}  // namespace balance

}  // namespace orch
