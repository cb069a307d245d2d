// Movement-aware balancing: every rank's cost under (1 + tolerance) of the lower bound, with as few bytes moved as can
// be.
//
// Samples stay at home unless moving them is needed (detail/mover.hpp). Bytes between nodes weigh most, then bytes
// inside nodes, then the number of peers. Costs add up, or are those of convolution + packed or padded batches, with
// true rank costs throughout. Counts, capacity, speeds and groups hold as in constraints.hpp; a group is at home where
// most of its bytes are.
//
// Some instances have no assignment under the limit, and the bound of convolution + packed costs is weak. Then the
// target is the largest cost of the plain solver (balance(), conv_packed()), for convolution + packed costs with the
// tolerance on top, reached by moving little too.
//
// The certificate bounds movement: whatever meets the limit must take the surplus of every node and rank away, and the
// cheapest bytes that do are a fractional knapsack. Every sample counts there with its cost alone, which no batch
// undercuts; constraints are left out, which can only lower the bounds.
// Units: costs as in cost/, bytes are what a sample's move puts on a link. Complexity: O(n), as the radix sort of the
// costs, where moves suffice; that of the plain solver and place_total() more where the limit is out of reach.
// Guarantee: constraints hold; max cost ≤ target; `met` says whether the limit holds too. Deterministic. Throws
// InvalidInput, Overflow (also where all samples on one rank would), Infeasible.
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

#include "orchmllm/balance/balance.hpp"
#include "orchmllm/balance/conv_packed.hpp"
#include "orchmllm/balance/detail/movement_start.hpp"
#include "orchmllm/balance/detail/mover.hpp"
#include "orchmllm/balance/padded.hpp"

namespace orch {

struct MovementOptions {
  double tolerance = 0.01;  ///< ≥ 0: the limit is (1 + tolerance) · lower bound
  Constraints constraints = {};
};

struct Movement {
  Assignment assignment;
  Cost limit = 0;    ///< largest rank cost that was asked for
  Cost target = 0;   ///< largest rank cost that was aimed at: the limit, or above it what the plain solver reaches
  bool met = false;  ///< max cost ≤ limit
  std::uint64_t inter_node_bytes = 0;
  std::uint64_t intra_node_bytes = 0;
  std::uint64_t inter_node_bound = 0;  ///< every assignment under the limit moves at least this between nodes
  std::uint64_t moved_bound = 0;       ///< … and this between ranks
  std::uint32_t moved_samples = 0;
  std::uint32_t peers = 0;  ///< ordered pairs of ranks that exchange data

  [[nodiscard]] std::uint64_t moved_bytes() const { return inter_node_bytes + intra_node_bytes; }
};

namespace balance {

namespace detail {

/// The samples of a movement problem and where they are.
struct Sampled {
  std::span<const std::uint64_t> bytes;
  std::span<const std::uint32_t> home_rank;
  const Topology& topology;
};

inline void require_sampled(std::size_t samples, const Sampled& sampled, double tolerance) {
  if (sampled.bytes.size() != samples || sampled.home_rank.size() != samples) {
    throw InvalidInput("costs, bytes and home ranks must be given for the same samples: " + std::to_string(samples) +
                       ", " + std::to_string(sampled.bytes.size()) + ", " + std::to_string(sampled.home_rank.size()));
  }
  if (!(tolerance >= 0) || tolerance > 1e6) throw InvalidInput("tolerance must be at least 0, at most 1000000");
  require_ranks(sampled.topology.ranks());
  for (std::size_t i = 0; i < samples; ++i) {
    if (sampled.home_rank[i] < sampled.topology.ranks()) continue;
    throw InvalidInput("sample " + std::to_string(i) + " is on rank " + std::to_string(sampled.home_rank[i]) + " of " +
                       std::to_string(sampled.topology.ranks()));
  }
}

[[nodiscard]] inline Cost above(Cost bound, double part) {
  const double more = static_cast<double>(bound) * part;
  if (more >= 18446744073709551615.0)
    throw Overflow("the tolerance times a cost of " + std::to_string(bound) + " does not fit into 64 bits");
  return checked_add(bound, static_cast<Cost>(more));
}

/// The largest load of every rank whose cost is at most `cost`.
[[nodiscard]] inline std::vector<Cost> loads_under(const Problem& problem, Cost cost) {
  std::vector<Cost> loads(problem.ranks, cost);
  if (problem.speed.empty()) return loads;
  __extension__ using Wide = unsigned __int128;
  for (std::uint32_t rank = 0; rank < problem.ranks; ++rank) {
    loads[rank] = static_cast<Cost>(static_cast<Wide>(cost) * problem.speed[rank] / problem.fastest);
  }
  return loads;
}

[[nodiscard]] inline RankLimits limits_of(const Problem& problem, Cost bound, Cost limit) {
  const Cost slack = limit - std::min(bound, limit);
  return {loads_under(problem, limit), loads_under(problem, limit - slack / 3),
          loads_under(problem, limit - slack / 6)};
}

/// Fewest bytes, fractions of samples allowed, that take `surplus` cost away.
[[nodiscard]] inline std::uint64_t cheapest_bytes(PriceList& list, Cost surplus) {
  list.ready();
  std::uint64_t sum = 0;
  while (surplus > 0 && !list.empty()) {
    const Priced next = list.next();
    if (next.cost <= surplus) {
      sum = checked_add(sum, next.bytes);
      surplus -= next.cost;
    } else {
      __extension__ using Wide = unsigned __int128;
      sum = checked_add(sum, static_cast<std::uint64_t>(static_cast<Wide>(next.bytes) * surplus / next.cost));
      surplus = 0;
    }
  }
  return sum;
}

/// Bounds from the surplus of ranks and of nodes over what the limits let them keep. `costs` = of every sample alone.
class MovementBounds {
 public:
  MovementBounds(std::span<const Cost> costs, const Sampled& sampled, std::span<const Cost> limit)
      : costs_(costs), sampled_(sampled), limit_(limit), by_rank_(costs.size()) {
    // Samples by home rank: a counting sort.
    std::vector<std::uint32_t> next(limit.size() + 1, 0);
    for (const std::uint32_t rank : sampled.home_rank) ++next[rank + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    first_ = next;
    for (std::uint32_t i = 0; i < costs.size(); ++i) by_rank_[next[sampled.home_rank[i]]++] = i;
  }

  [[nodiscard]] std::uint64_t between_ranks() {
    std::uint64_t sum = 0;
    for (std::uint32_t rank = 0; rank < limit_.size(); ++rank) sum = checked_add(sum, leaving(rank, rank + 1));
    return sum;
  }
  [[nodiscard]] std::uint64_t between_nodes() {
    const std::vector<std::uint32_t>& first_rank = sampled_.topology.first_rank;
    std::uint64_t sum = 0;
    for (std::size_t node = 0; node + 1 < first_rank.size(); ++node)
      sum = checked_add(sum, leaving(first_rank[node], first_rank[node + 1]));
    return sum;
  }

 private:
  /// What must leave the ranks begin … end − 1 together.
  [[nodiscard]] std::uint64_t leaving(std::uint32_t begin, std::uint32_t end) {
    const auto samples = std::span(by_rank_).subspan(first_[begin], first_[end] - first_[begin]);
    Cost load = 0;
    for (const std::uint32_t sample : samples) load = checked_add(load, costs_[sample]);
    const Cost limit = std::accumulate(limit_.begin() + begin, limit_.begin() + end, Cost{0}, saturating_add);
    if (load <= limit) return 0;
    list_.clear();
    for (const std::uint32_t sample : samples) {
      if (costs_[sample] > 0) list_.add({sampled_.bytes[sample], costs_[sample], sample});
    }
    return cheapest_bytes(list_, load - limit);
  }

  std::span<const Cost> costs_;
  const Sampled& sampled_;
  std::span<const Cost> limit_;
  std::vector<std::uint32_t> by_rank_;
  std::vector<std::uint32_t> first_;  ///< rank → its first sample in by_rank_
  PriceList list_;
};

inline void count_movement(Movement& result, const Sampled& sampled) {
  const Topology& topology = sampled.topology;
  std::vector<std::uint64_t> pairs;
  for (std::size_t i = 0; i < sampled.home_rank.size(); ++i) {
    const std::uint32_t home = sampled.home_rank[i];
    const std::uint32_t to = result.assignment.rank_of[i];
    if (to == home) continue;
    ++result.moved_samples;
    pairs.push_back(std::uint64_t{home} * topology.ranks() + to);
    std::uint64_t& sum =
        topology.node_of[to] == topology.node_of[home] ? result.intra_node_bytes : result.inter_node_bytes;
    sum = checked_add(sum, sampled.bytes[i]);
  }
  (void)checked_add(result.intra_node_bytes, result.inter_node_bytes);
  std::sort(pairs.begin(), pairs.end());
  result.peers = static_cast<std::uint32_t>(std::unique(pairs.begin(), pairs.end()) - pairs.begin());
}

/// Items → ranks of an assignment of samples.
[[nodiscard]] inline std::vector<std::uint32_t> rank_of_items(const Problem& problem,
                                                              std::span<const std::uint32_t> rank_of) {
  std::vector<std::uint32_t> of_item(problem.items.size());
  for (std::size_t item = 0; item < of_item.size(); ++item) {
    of_item[item] = rank_of[problem.members.empty() ? problem.sample[item] : problem.members[item].front()];
  }
  return of_item;
}

/// The movement problem behind every cost: batches of items, their costs alone, a bound, and a plain solver.
struct MovementProblem {
  Problem problem;                           ///< items with costs alone
  std::span<const Cost> alone;               ///< sample → cost
  std::vector<ConvPackedCost::Batch> items;  ///< item → what its rank's cost depends on
  Cost conv_alpha = 0;
  Cost bound = 0;
  bool weak_bound = false;  ///< then the tolerance is granted on top of what the plain solver reaches
};

/// `plain()` → assignment that meets the constraints; `rank_costs(rank_of)` → loads, speeds left out.
template <class Plain, class RankCosts>
[[nodiscard]] Movement solve_movement(const MovementProblem& movement, const Sampled& sampled, double tolerance,
                                      Plain&& plain, RankCosts&& rank_costs) {
  const Problem& problem = movement.problem;
  const Topology& topology = sampled.topology;
  const Homes homes = homes_of(problem, sampled.bytes, sampled.home_rank, topology);
  std::vector<std::uint32_t> rank_of;
  const auto move_from = [&](std::vector<std::uint32_t> start, Cost limit) {
    const RankLimits limits = limits_of(problem, movement.bound, limit);
    Mover mover(RankLoads(problem, movement.items, movement.conv_alpha, std::move(start)), limits, homes, topology);
    const bool done = mover.run();
    if (done) rank_of = mover.rank_of();
    return done;
  };
  const auto costs_of = [&](std::span<const std::uint32_t> samples_rank_of) {
    std::vector<Cost> costs = rank_costs(samples_rank_of);
    for (std::uint32_t rank = 0; rank < problem.ranks; ++rank) costs[rank] = problem.rank_cost(rank, costs[rank]);
    return costs;
  };

  Movement result;
  result.limit = result.target = above(movement.bound, tolerance);
  const std::vector<Cost> limit = loads_under(problem, result.limit);
  MovementBounds bounds(movement.alone, sampled, limit);
  result.inter_node_bound = bounds.between_nodes();
  result.moved_bound = bounds.between_ranks();
  const std::optional<std::vector<std::uint32_t>> start = start_near_home(problem, homes, topology);
  // Where padding at home alone fills all ranks beyond the limit, moving little will not do.
  const auto total = [](std::span<const Cost> loads) {
    return std::accumulate(loads.begin(), loads.end(), Cost{0}, saturating_add);
  };
  const bool hopeless = movement.weak_bound && start && total(rank_costs(problem.expand(*start))) > total(limit);
  bool done = start && !hopeless && move_from(*start, result.limit);
  std::vector<std::uint32_t> flat;
  if (!done) {
    flat = plain();
    const Cost reached = largest(costs_of(flat));
    if (reached > result.limit) result.target = above(reached, movement.weak_bound ? tolerance : 0);
    done = result.target > result.limit && start && move_from(*start, result.target);
  }
  if (!done) {
    if (problem.speed.empty()) {  // then ranks are interchangeable
      const Placement placed =
          placement::place_total(traffic_matrix(sampled.home_rank, flat, sampled.bytes, problem.ranks), topology);
      for (std::uint32_t& rank : flat) rank = placed.rank_of[rank];
    }
    (void)move_from(rank_of_items(problem, flat), result.target);
  }
  result.assignment = {problem.ranks, problem.expand(rank_of), {}, movement.bound, "movement"};
  result.assignment.rank_cost = costs_of(result.assignment.rank_of);
  result.met = result.assignment.max_cost() <= result.limit;
  count_movement(result, sampled);
  return result;
}

/// problem_of(), without its detours where nothing constrains.
[[nodiscard]] inline Problem movement_items(std::span<const Cost> costs, std::uint32_t ranks,
                                            const Constraints& constraints) {
  if (!constraints.unconstrained()) return problem_of(costs, ranks, constraints);
  Problem problem;
  problem.ranks = problem.ranks_at_max = ranks;
  problem.samples = problem.max_count = sample_count(costs.size());
  problem.capacity = std::numeric_limits<std::uint64_t>::max();
  problem.sample = descending_order(costs);
  problem.items.reserve(costs.size());
  for (const std::uint32_t sample : problem.sample) problem.items.push_back({costs[sample], 0, 1});
  return problem;
}

/// Items of convolution + packed batches. Throws Overflow where all on one rank do.
[[nodiscard]] inline std::vector<ConvPackedCost::Batch> merged_items(const Problem& problem,
                                                                     std::span<const ConvPackedCost::Batch> samples,
                                                                     const ConvPackedCost& cost) {
  std::vector<ConvPackedCost::Batch> items(problem.items.size());
  ConvPackedCost::Batch all;
  for (std::size_t item = 0; item < items.size(); ++item) {
    if (problem.members.empty()) {
      items[item] = samples[problem.sample[item]];
    } else {
      for (const std::uint32_t sample : problem.members[item])
        items[item] = ConvPackedCost::merge(items[item], samples[sample]);
    }
    all = ConvPackedCost::merge(all, items[item]);
  }
  (void)cost(all);
  return items;
}

/// A feasible assignment for costs that add up, as flat as the tolerance asks.
[[nodiscard]] inline std::vector<std::uint32_t> plain_additive(std::span<const Cost> costs, std::uint32_t ranks,
                                                               const MovementOptions& options) {
  return balance(costs, ranks, {.constraints = options.constraints, .target_gap = options.tolerance})
      .assignment.rank_of;
}

/// Movement under a convolution + packed cost, given a bound and a solver for the case without constraints.
template <class Free>
[[nodiscard]] Movement move_batches(std::span<const ConvPackedCost::Batch> samples, const ConvPackedCost& cost,
                                    const Sampled& sampled, const MovementOptions& options, Cost bound, bool weak_bound,
                                    Free&& free) {
  std::vector<Cost> alone(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) alone[i] = cost(samples[i]);
  const std::uint32_t ranks = sampled.topology.ranks();
  MovementProblem movement{
      movement_items(alone, ranks, options.constraints), alone, {}, cost.conv_alpha, 0, weak_bound};
  movement.items = merged_items(movement.problem, samples, cost);
  movement.bound = std::max(bound, constrained_bound(movement.problem));
  return solve_movement(
      movement, sampled, options.tolerance,
      [&] { return options.constraints.unconstrained() ? free() : plain_additive(alone, ranks, options); },
      [&](std::span<const std::uint32_t> rank_of) { return conv_packed_rank_costs(samples, rank_of, ranks, cost); });
}

}  // namespace detail

/// Costs that add up.
[[nodiscard]] inline Movement movement(std::span<const Cost> costs, std::span<const std::uint64_t> bytes,
                                       std::span<const std::uint32_t> home_rank, const Topology& topology,
                                       const MovementOptions& options = {}) {
  const detail::Sampled sampled{bytes, home_rank, topology};
  detail::require_sampled(costs.size(), sampled, options.tolerance);
  detail::MovementProblem movement{
      detail::movement_items(costs, topology.ranks(), options.constraints), costs, {}, 0, 0, false};
  movement.bound = detail::constrained_bound(movement.problem);
  movement.items.reserve(movement.problem.items.size());
  for (const detail::Problem::Item& item : movement.problem.items) movement.items.push_back({0, 0, item.cost});
  return detail::solve_movement(
      movement, sampled, options.tolerance, [&] { return detail::plain_additive(costs, topology.ranks(), options); },
      [&](std::span<const std::uint32_t> rank_of) { return rank_costs(costs, rank_of, topology.ranks()); });
}

/// Convolution + packed costs.
[[nodiscard]] inline Movement movement(std::span<const ConvPackedCost::Batch> samples, const ConvPackedCost& cost,
                                       std::span<const std::uint64_t> bytes, std::span<const std::uint32_t> home_rank,
                                       const Topology& topology, const MovementOptions& options = {}) {
  const detail::Sampled sampled{bytes, home_rank, topology};
  detail::require_sampled(samples.size(), sampled, options.tolerance);
  return detail::move_batches(samples, cost, sampled, options, 0, cost.conv_alpha != 0,
                              [&] { return conv_packed(samples, topology.ranks(), cost).rank_of; });
}

/// Padded costs; without constraints the bound is the optimum.
[[nodiscard]] inline Movement movement(std::span<const std::uint64_t> lengths, const PaddedCost& cost,
                                       std::span<const std::uint64_t> bytes, std::span<const std::uint32_t> home_rank,
                                       const Topology& topology, const MovementOptions& options = {}) {
  const detail::Sampled sampled{bytes, home_rank, topology};
  detail::require_sampled(lengths.size(), sampled, options.tolerance);
  // b samples that are padded to m cost b · f(m): units of length f, which grows with the length.
  std::vector<ConvPackedCost::Batch> samples;
  samples.reserve(lengths.size());
  for (const std::uint64_t length : lengths) samples.push_back({1, cost.per_sample(length), 0});
  const Assignment optimal = padded(lengths, topology.ranks(), cost);
  return detail::move_batches(samples, {.conv_alpha = 1, .packed = {}}, sampled, options, optimal.max_cost(), false,
                              [&] { return optimal.rank_of; });
}

}  // namespace balance

}  // namespace orch
