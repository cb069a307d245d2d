// What one phase of a step asks to be balanced, and how: from items and the bytes that wait for them to ranks.
//
// Items that stay together (all units of a sample, or each unit alone) form a group; solvers see groups. A phase stays
// where its samples were drawn, or is balanced from scratch and then placed node by node where its bytes are, or is
// balanced by moving as little as possible from where most of its bytes are.
// Complexity: O(n log n). Deterministic.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "orchmllm/balance/balance.hpp"
#include "orchmllm/balance/conv_packed.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/balance/movement.hpp"
#include "orchmllm/balance/padded.hpp"
#include "orchmllm/cost/conv_packed.hpp"
#include "orchmllm/cost/padded.hpp"
#include "orchmllm/placement/flow.hpp"

namespace orch {

enum class Balancer : std::uint8_t {
  home,       ///< every sample where it was drawn
  lpt,        ///< LPT and its relatives: flat, whatever it moves
  automatic,  ///< as flat as balance() gets it: LPT, Karmarkar–Karp, refinement
  movement,   ///< within the tolerance of the bound, moving as little as possible
};

enum class Granularity : std::uint8_t {
  sample,  ///< all units of a sample on one rank
  unit,    ///< every image and clip on its own
};

using PhaseCost = std::variant<ConvPackedCost, PaddedCost>;

/// Chooses the rank of every balanced batch; rows of the matrix are batches, places the ranks that hold their bytes.
using Placer = std::function<Placement(const TrafficMatrix&, const Topology&)>;

/// Bytes that wait for a group on one rank.
struct Piece {
  std::uint32_t group = 0;
  std::uint32_t rank = 0;
  std::uint64_t bytes = 0;
};

struct PhaseProblem {
  PhaseCost cost;
  std::vector<ConvPackedCost::Batch> groups;
  std::vector<std::uint32_t> home;  ///< group → rank where its sample was drawn
  std::vector<Piece> pieces;        ///< by group

  [[nodiscard]] std::vector<Cost> rank_costs(std::span<const std::uint32_t> rank_of, std::uint32_t ranks) const;
  [[nodiscard]] Assignment stay(std::uint32_t ranks) const;
  [[nodiscard]] Assignment flat(std::uint32_t ranks, bool refine) const;
  [[nodiscard]] Assignment move(const Topology& topology, double tolerance) const;
  void place(Assignment& assignment, const Topology& topology, const Placer& placer) const;
};

namespace detail {

/// Cost of a rank that processes this batch alone.
[[nodiscard]] inline Cost batch_cost(const PhaseCost& cost, const ConvPackedCost::Batch& batch) {
  if (const auto* padded = std::get_if<PaddedCost>(&cost)) return (*padded)(batch.units, batch.longest);
  return std::get<ConvPackedCost>(cost)(batch);
}

/// Cost of every group alone; for additive costs what it adds to a rank.
[[nodiscard]] inline std::vector<Cost> alone(const PhaseProblem& problem) {
  std::vector<Cost> costs(problem.groups.size());
  for (std::size_t g = 0; g < costs.size(); ++g) costs[g] = batch_cost(problem.cost, problem.groups[g]);
  return costs;
}

/// Lengths of groups of one unit each, which is what the padded solver takes. Throws InvalidInput for larger groups.
[[nodiscard]] inline std::vector<std::uint64_t> single_lengths(const PhaseProblem& problem) {
  std::vector<std::uint64_t> lengths(problem.groups.size());
  for (std::size_t g = 0; g < lengths.size(); ++g) {
    if (problem.groups[g].units > 1) {
      throw InvalidInput("a padded cost with " + std::to_string(problem.groups[g].units) +
                         " units in one sample: choose the granularity of units, or a packed cost");
    }
    lengths[g] = problem.groups[g].longest;
  }
  return lengths;
}

[[nodiscard]] inline bool adds_up(const PhaseCost& cost) {
  const auto* packed = std::get_if<ConvPackedCost>(&cost);
  return packed != nullptr && packed->conv_alpha == 0;
}

/// Where most of every group's bytes are (its home among equals), and how many.
struct Anchors {
  std::vector<std::uint32_t> rank;
  std::vector<std::uint64_t> bytes;
};

[[nodiscard]] inline Anchors anchors(const PhaseProblem& problem) {
  Anchors result{problem.home, std::vector<std::uint64_t>(problem.groups.size(), 0)};
  std::vector<std::pair<std::uint32_t, std::uint64_t>> held;  // of one group: rank, bytes
  for (std::size_t i = 0; i < problem.pieces.size();) {
    const std::uint32_t group = problem.pieces[i].group;
    if (i + 1 == problem.pieces.size() || problem.pieces[i + 1].group != group) {  // all in one place, most often
      if (problem.pieces[i].bytes > 0) result.rank[group] = problem.pieces[i].rank;
      result.bytes[group] = problem.pieces[i++].bytes;
      continue;
    }
    held.assign(1, {problem.home[group], 0});
    for (; i < problem.pieces.size() && problem.pieces[i].group == group; ++i) {
      const Piece& piece = problem.pieces[i];
      const auto same = std::find_if(held.begin(), held.end(), [&](const auto& h) { return h.first == piece.rank; });
      if (same == held.end()) {
        held.emplace_back(piece.rank, piece.bytes);
      } else {
        same->second = checked_add(same->second, piece.bytes);
      }
    }
    const auto most =
        std::max_element(held.begin(), held.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    result.rank[group] = most->first;
    result.bytes[group] = most->second;
  }
  return result;
}

}  // namespace detail

/// True cost of every rank.
inline std::vector<Cost> PhaseProblem::rank_costs(std::span<const std::uint32_t> rank_of, std::uint32_t ranks) const {
  std::vector<ConvPackedCost::Batch> batches(ranks);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    batches[rank_of[g]] = ConvPackedCost::merge(batches[rank_of[g]], groups[g]);
  }
  std::vector<Cost> costs(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) costs[rank] = detail::batch_cost(cost, batches[rank]);
  return costs;
}

/// The sampled layout. Its lower bound is that of groups alone.
inline Assignment PhaseProblem::stay(std::uint32_t ranks) const {
  const std::vector<Cost> costs = detail::alone(*this);
  return {ranks, home, rank_costs(home, ranks), balance::lower_bound(costs, descending_order(costs), ranks), "home"};
}

inline Assignment PhaseProblem::flat(std::uint32_t ranks, bool refine) const {
  if (const auto* padded = std::get_if<PaddedCost>(&cost)) {
    return balance::padded(detail::single_lengths(*this), ranks, *padded);
  }
  if (!detail::adds_up(cost)) return balance::conv_packed(groups, ranks, std::get<ConvPackedCost>(cost));
  if (refine) return balance::balance(detail::alone(*this), ranks).assignment;
  return balance::greedy(detail::alone(*this), ranks);
}

/// Renames the ranks of a flat assignment so that batches meet their bytes; rank costs are left to the caller.
inline void PhaseProblem::place(Assignment& assignment, const Topology& topology, const Placer& placer) const {
  std::vector<std::uint32_t> from(pieces.size());
  std::vector<std::uint32_t> to(pieces.size());
  std::vector<std::uint64_t> bytes(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    from[i] = pieces[i].rank;
    to[i] = assignment.rank_of[pieces[i].group];
    bytes[i] = pieces[i].bytes;
  }
  const Placement placed = placer(traffic_matrix(from, to, bytes, topology.ranks()), topology);
  for (std::uint32_t& rank : assignment.rank_of) rank = placed.rank_of[rank];
}

/// Within the tolerance of the bound, moving as few bytes as can be from where they are.
inline Assignment PhaseProblem::move(const Topology& topology, double tolerance) const {
  const detail::Anchors anchor = detail::anchors(*this);
  const MovementOptions options{.tolerance = tolerance};
  if (const auto* padded = std::get_if<PaddedCost>(&cost)) {
    const std::vector<std::uint64_t> lengths = detail::single_lengths(*this);
    return balance::movement(lengths, *padded, anchor.bytes, anchor.rank, topology, options).assignment;
  }
  if (!detail::adds_up(cost)) {
    const auto& conv_packed = std::get<ConvPackedCost>(cost);
    return balance::movement(groups, conv_packed, anchor.bytes, anchor.rank, topology, options).assignment;
  }
  return balance::movement(detail::alone(*this), anchor.bytes, anchor.rank, topology, options).assignment;
}

}  // namespace orch
