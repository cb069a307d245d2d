// One call for costs that add up: chooses a solver by constraints, size and effort, and says what it chose and why.
//
//   few samples                     exact.hpp, proven optimal
//   no constraints                  LPT; Karmarkar–Karp where LPT leaves a gap and the size allows; then refinement
//   counts, capacity, speeds, groups  constrained LPT, then refinement under the same constraints
//
// With home ranks, the sampled layout is kept (at no copy for the caller: `moved` is false) when balancing gains less
// than `min_gain`. Effort is a number of operations, not a clock: the same input gives the same plan everywhere.
// Complexity: of the solvers named. Throws InvalidInput, Infeasible, Overflow.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/balance/constraints.hpp"
#include "orchmllm/balance/exact.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/balance/karmarkar_karp.hpp"
#include "orchmllm/balance/refine.hpp"

namespace orch {

struct BalanceOptions {
  Constraints constraints = {};
  double target_gap = 1e-4;      ///< good enough: (1 + target_gap) · lower bound
  double effort_seconds = 0.05;  ///< rough upper end of the solve time, at 10^8 simple operations a second
  std::span<const std::uint32_t> home_rank = {};  ///< sample → rank before; empty = none
  double min_gain = 0;  ///< least relative fall of the maximum that is worth moving samples for
};

struct Balanced {
  Assignment assignment;
  std::string reason;           ///< which solver, and why
  bool moved = true;            ///< false: the home ranks were kept
  double imbalance_before = 0;  ///< of the home ranks; 0 = none given
};

namespace balance {

namespace detail {

/// Estimated simple operations; only their order of magnitude matters.
struct Effort {
  double left;
  [[nodiscard]] bool allows(double operations) const { return operations <= left; }
};

[[nodiscard]] inline Assignment flatter(Assignment a, Assignment b) {
  b.lower_bound = a.lower_bound = std::max(a.lower_bound, b.lower_bound);
  return b.max_cost() < a.max_cost() ? std::move(b) : std::move(a);
}

[[nodiscard]] inline Balanced solve_free(std::span<const Cost> costs, std::uint32_t ranks,
                                         const BalanceOptions& options, const Effort& effort) {
  Balanced result{greedy(costs, ranks), "", true, 0};
  const auto gap = [&] { return std::to_string(100 * result.assignment.gap()) + " %"; };
  if (result.assignment.gap() <= options.target_gap) {
    result.reason = "greedy: LPT is within the target gap of the bound";
    return result;
  }
  const double n = static_cast<double>(costs.size());
  if (effort.allows(n * ranks / 16 + 100 * n)) {
    result.assignment = flatter(std::move(result.assignment), karmarkar_karp(costs, ranks));
    result.reason = "greedy and karmarkar-karp, the flatter of both";
  } else {
    result.reason = "greedy: karmarkar-karp is beyond the effort";
  }
  if (result.assignment.gap() > options.target_gap && !effort.allows(20 * n)) {
    result.reason += "; refinement is beyond the effort";
  } else if (result.assignment.gap() > options.target_gap) {
    Assignment refined = refine(
        costs, result.assignment.rank_of, ranks, {},
        {.target_gap = options.target_gap, .max_steps = static_cast<std::uint64_t>(std::max(64.0, effort.left / 256))});
    const bool better = refined.max_cost() < result.assignment.max_cost();
    result.assignment = flatter(std::move(result.assignment), std::move(refined));
    if (better) result.reason += ", then refined";
  }
  result.reason += "; gap " + gap();
  return result;
}

[[nodiscard]] inline Balanced solve_constrained(std::span<const Cost> costs, std::uint32_t ranks,
                                                const BalanceOptions& options, const Effort& effort) {
  const Problem problem = problem_of(costs, ranks, options.constraints);
  auto start = place_constrained(problem);
  if (!start) {
    // No greedy order fits: search, and let the search say what would do.
    return {exact(costs, ranks, options.constraints, {.max_nodes = static_cast<std::uint64_t>(effort.left)}),
            "branch and bound: no greedy order met the constraints", true, 0};
  }
  const Cost bound = constrained_bound(problem);
  Refiner refiner(
      problem, std::move(*start), bound,
      {.target_gap = options.target_gap, .max_steps = static_cast<std::uint64_t>(std::max(64.0, effort.left / 256))});
  return {assignment_of(problem, costs, refiner.run(), "constrained"), "constrained LPT, then refined", true, 0};
}

}  // namespace detail

[[nodiscard]] inline Balanced balance(std::span<const Cost> costs, std::uint32_t ranks,
                                      const BalanceOptions& options = {}) {
  require_ranks(ranks);
  if (!(options.target_gap >= 0) || !(options.effort_seconds >= 0) || !(options.min_gain >= 0) ||
      options.target_gap > 1e6 || options.effort_seconds > 1e6) {
    throw InvalidInput("target_gap, effort_seconds and min_gain must be at least 0, at most 1000000");
  }
  constexpr std::size_t few = 12;
  const detail::Effort effort{1e8 * options.effort_seconds};
  Balanced result;
  if (costs.size() <= few && effort.allows(1e5)) {
    result.assignment = exact(costs, ranks, options.constraints);
    result.reason = std::to_string(costs.size()) + " samples: branch and bound, " +
                    (result.assignment.gap() == 0 ? "proven optimal" : "node budget reached");
  } else if (options.constraints.unconstrained()) {
    result = detail::solve_free(costs, ranks, options, effort);
  } else {
    result = detail::solve_constrained(costs, ranks, options, effort);
  }
  if (options.home_rank.empty()) return result;

  detail::require_size(options.home_rank.size(), costs.size(), "home ranks");
  Assignment home = result.assignment;
  home.rank_of.assign(options.home_rank.begin(), options.home_rank.end());
  home.solver = "home";
  home.rank_cost = rank_costs(costs, home.rank_of, ranks);
  const detail::Problem problem = detail::problem_of(costs, ranks, options.constraints);
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    home.rank_cost[rank] = problem.rank_cost(rank, home.rank_cost[rank]);
  result.imbalance_before = home.imbalance();
  const auto before = static_cast<double>(home.max_cost());
  const auto after = static_cast<double>(result.assignment.max_cost());
  // Only a layout that meets the constraints itself may stay.
  if (options.constraints.unconstrained() && before - after <= options.min_gain * before) {
    result.assignment = std::move(home);
    result.moved = false;
    result.reason = "home: balancing gains no more than the threshold";
  }
  return result;
}

}  // namespace balance

}  // namespace orch
