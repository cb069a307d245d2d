// Local refinement of an assignment: the heaviest rank gives, moves or swaps, until the maximum is close to the bound.
//
// Each step takes the heaviest rank and tries to lower it, first with the lightest ranks as partners: move a sample,
// swap two, and, where that does not help, swap two samples of it for one of the partner or one for two. A step is
// taken only if both ranks end below the maximum, so the maximum never rises; among the steps that reach the target the
// one that takes least is chosen, which leaves room for the others. Stops at the target, or when the heaviest rank
// cannot be lowered. Constraints (counts, capacity, speeds) hold after every step if they held before. Complexity: a
// step looks at `partners` ranks, O(samples a rank) each for swaps (two pointers over sorted lists); at most
// `max_steps` steps. Guarantee: never worse than its input. Deterministic.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "orchmllm/balance/constraints.hpp"

namespace orch::balance {

struct RefineOptions {
  double target_gap = 1e-4;     ///< stop at (1 + target_gap) · lower bound
  std::uint32_t partners = 16;  ///< ranks that a step looks at
  std::uint64_t max_steps = 1U << 20U;
};

namespace detail {

class Refiner {
 public:
  Refiner(const Problem& problem, std::vector<std::uint32_t> rank_of, Cost bound, const RefineOptions& options)
      : problem_(problem),
        options_(options),
        rank_of_(std::move(rank_of)),
        load_(problem.ranks, 0),
        count_(problem.ranks, 0),
        weight_(problem.ranks, 0),
        on_rank_(problem.ranks),
        target_(checked_add(bound, static_cast<Cost>(static_cast<double>(bound) * options.target_gap))) {
    // Items are sorted by descending cost, so every rank's list is too.
    for (std::uint32_t item = 0; item < rank_of_.size(); ++item) {
      const std::uint32_t rank = rank_of_[item];
      on_rank_[rank].push_back(item);
      load_[rank] += problem.items[item].cost;
      count_[rank] += problem.items[item].count;
      weight_[rank] += problem.items[item].weight;
    }
    for (std::uint32_t rank = 0; rank < problem.ranks; ++rank) {
      by_cost_.insert({cost(rank), rank});
      if (count_[rank] == problem.max_count) ++at_max_;
    }
  }

  std::vector<std::uint32_t> run() {
    for (std::uint64_t step = 0; step < options_.max_steps && problem_.ranks > 1; ++step) {
      const auto [most, heavy] = *by_cost_.rbegin();
      if (most <= target_ || !lower(heavy)) break;
    }
    return std::move(rank_of_);
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// Samples that leave the heavy rank, and samples that come for them.
  struct Step {
    std::uint32_t partner = 0;
    std::array<std::uint32_t, 2> out{none, none};
    std::array<std::uint32_t, 2> in{none, none};
    Cost heavy_after = 0;
    Cost worse_after = 0;  ///< larger of both ranks' costs
  };

  [[nodiscard]] Cost cost(std::uint32_t rank) const { return problem_.rank_cost(rank, load_[rank]); }
  [[nodiscard]] Cost item_cost(std::uint32_t item) const { return item == none ? 0 : problem_.items[item].cost; }

  bool lower(std::uint32_t heavy) {
    const Cost before = cost(heavy);
    Step best;
    best.worse_after = before;
    std::uint32_t looked = 0;
    for (auto light = by_cost_.begin(); light != by_cost_.end() && looked < options_.partners; ++light, ++looked) {
      if (light->second == heavy || light->first >= before) break;
      best.partner = best.out[0] == none ? light->second : best.partner;
      look_at(heavy, light->second, best);
      if (best.out[0] != none && best.worse_after <= target_) break;
    }
    if (best.out[0] == none) {
      looked = 0;
      for (auto light = by_cost_.begin(); light != by_cost_.end() && looked < options_.partners; ++light, ++looked) {
        if (light->second == heavy || light->first >= before) break;
        look_at_pairs(heavy, light->second, best);
        if (best.out[0] != none && best.worse_after <= target_) break;
      }
    }
    if (best.out[0] == none) return chain(heavy);
    take(heavy, best);
    return true;
  }

  /// A sample of the heavy rank goes to a light one, which then gives to a third; undone unless all three end below the
  /// maximum.
  bool chain(std::uint32_t heavy) {
    const Cost before = cost(heavy);
    constexpr std::size_t most_partners = 4;
    constexpr std::size_t most_samples = 16;
    std::vector<std::uint32_t> partners;
    for (auto light = by_cost_.begin(); light != by_cost_.end() && partners.size() < most_partners; ++light) {
      if (light->second != heavy && light->first < before) partners.push_back(light->second);
    }
    const std::vector<std::uint32_t> samples = on_rank_[heavy];
    const std::size_t stride = std::max<std::size_t>(1, samples.size() / most_samples);
    for (const std::uint32_t middle : partners) {
      for (std::size_t i = 0; i < samples.size(); i += stride) {
        if (item_cost(samples[i]) == 0 || !allowed(heavy, middle, {samples[i], none}, {none, none})) continue;
        take(heavy, {.partner = middle, .out = {samples[i], none}});
        Step next;
        next.worse_after = before;
        for (const std::uint32_t third : partners) {
          if (third != middle && cost(third) < cost(middle)) look_at(middle, third, next);
        }
        if (next.out[0] != none && cost(heavy) < before) {
          take(middle, next);
          return true;
        }
        take(middle, {.partner = heavy, .out = {samples[i], none}});
      }
    }
    return false;
  }

  /// Moves and swaps between two ranks. For each sample that leaves, the best one to come back is next to the cost that
  /// would split the difference; costs descend on both lists, so one pass finds them all.
  void look_at(std::uint32_t heavy, std::uint32_t light, Step& best) {
    const auto& outs = on_rank_[heavy];
    const auto& ins = on_rank_[light];
    const Cost wanted = wanted_shift(heavy, light);
    std::size_t i = 0;
    for (const std::uint32_t out : outs) {
      const Cost out_cost = item_cost(out);
      if (out_cost == 0) break;
      consider(heavy, light, {out, none}, {none, none}, best);
      const Cost ideal = out_cost > wanted ? out_cost - wanted : 0;
      while (i < ins.size() && item_cost(ins[i]) > ideal) ++i;
      // Candidates around the ideal: constraints may forbid the closest ones.
      const std::size_t first = i >= 2 ? i - 2 : 0;
      for (std::size_t k = first; k < std::min(ins.size(), i + 2); ++k) {
        if (item_cost(ins[k]) < out_cost) consider(heavy, light, {out, none}, {ins[k], none}, best);
      }
    }
  }

  /// Two for one and one for two, on short prefixes of candidates.
  void look_at_pairs(std::uint32_t heavy, std::uint32_t light, Step& best) {
    const auto& outs = on_rank_[heavy];
    const auto& ins = on_rank_[light];
    constexpr std::size_t most = 64;
    const std::size_t a = std::min(outs.size(), most);
    const std::size_t b = std::min(ins.size(), most);
    const Cost wanted = wanted_shift(heavy, light);
    // Two leave, one comes.
    for (std::size_t x = 0; x < a; ++x) {
      std::size_t k = 0;
      for (std::size_t y = x + 1; y < a; ++y) {
        const Cost sum = item_cost(outs[x]) + item_cost(outs[y]);
        const Cost ideal = sum > wanted ? sum - wanted : 0;
        while (k < b && item_cost(ins[k]) > ideal) ++k;
        for (std::size_t z = k >= 1 ? k - 1 : 0; z < std::min(b, k + 1); ++z) {
          if (item_cost(ins[z]) < sum) consider(heavy, light, {outs[x], outs[y]}, {ins[z], none}, best);
        }
      }
    }
    // One leaves, two come; and two for two, the second pair completing the first.
    for (std::size_t x = 0; x < a; ++x) {
      const Cost out_cost = item_cost(outs[x]);
      const Cost ideal = out_cost > wanted ? out_cost - wanted : 0;
      if (ideal == 0) break;
      std::size_t low = b;
      for (std::size_t y = 0; y < b && low > 0; ++y) {
        while (low > 0 && item_cost(ins[low - 1]) + item_cost(ins[y]) <= ideal) --low;
        for (std::size_t z = low; z < std::min(b, low + 1); ++z) {
          if (z != y && item_cost(ins[z]) + item_cost(ins[y]) < out_cost) {
            consider(heavy, light, {outs[x], none}, {ins[y], ins[z]}, best);
          }
        }
      }
    }
  }

  /// Load that should change hands: enough to reach the target, or half of the difference if that is less.
  [[nodiscard]] Cost wanted_shift(std::uint32_t heavy, std::uint32_t light) const {
    const Cost above = cost(heavy) > target_ ? cost(heavy) - target_ : 0;
    const Cost half = (cost(heavy) - cost(light)) / 2;
    return std::min(above, half);
  }

  void consider(std::uint32_t heavy, std::uint32_t light, std::pair<std::uint32_t, std::uint32_t> out,
                std::pair<std::uint32_t, std::uint32_t> in, Step& best) const {
    const Cost leaves = item_cost(out.first) + item_cost(out.second);
    const Cost comes = item_cost(in.first) + item_cost(in.second);
    if (leaves <= comes) return;
    const Cost heavy_after = problem_.rank_cost(heavy, load_[heavy] - leaves + comes);
    const Cost light_after = problem_.rank_cost(light, load_[light] + leaves - comes);
    const Cost worse = std::max(heavy_after, light_after);
    // Below the target all steps are equally good for the maximum: take the one that shifts least.
    const bool reaches = worse <= target_;
    const bool best_reaches = best.out[0] != none && best.worse_after <= target_;
    if (reaches && best_reaches ? heavy_after <= best.heavy_after : worse >= best.worse_after) return;
    if (!allowed(heavy, light, out, in)) return;
    best = {light, {out.first, out.second}, {in.first, in.second}, heavy_after, worse};
  }

  [[nodiscard]] bool allowed(std::uint32_t heavy, std::uint32_t light, std::pair<std::uint32_t, std::uint32_t> out,
                             std::pair<std::uint32_t, std::uint32_t> in) const {
    const auto counts = [&](std::uint32_t item) { return item == none ? 0U : problem_.items[item].count; };
    const auto weights = [&](std::uint32_t item) {
      return item == none ? std::uint64_t{0} : problem_.items[item].weight;
    };
    const std::uint64_t out_weight = weights(out.first) + weights(out.second);
    const std::uint64_t in_weight = weights(in.first) + weights(in.second);
    if (weight_[light] - in_weight + out_weight > problem_.capacity) return false;
    if (weight_[heavy] - out_weight + in_weight > problem_.capacity) return false;
    const std::uint32_t out_count = counts(out.first) + counts(out.second);
    const std::uint32_t in_count = counts(in.first) + counts(in.second);
    if (out_count == in_count) return true;
    const std::uint32_t heavy_count = count_[heavy] - out_count + in_count;
    const std::uint32_t light_count = count_[light] - in_count + out_count;
    const auto within = [&](std::uint32_t count) { return count >= problem_.min_count && count <= problem_.max_count; };
    if (!within(heavy_count) || !within(light_count)) return false;
    const auto full = [&](std::uint32_t count) { return count == problem_.max_count ? 1U : 0U; };
    return at_max_ - full(count_[heavy]) - full(count_[light]) + full(heavy_count) + full(light_count) <=
           problem_.ranks_at_max;
  }

  void take(std::uint32_t heavy, const Step& step) {
    by_cost_.erase({cost(heavy), heavy});
    by_cost_.erase({cost(step.partner), step.partner});
    const auto full = [&](std::uint32_t rank) { return count_[rank] == problem_.max_count ? 1U : 0U; };
    at_max_ -= full(heavy) + full(step.partner);
    for (const std::uint32_t item : step.out) move(item, heavy, step.partner);
    for (const std::uint32_t item : step.in) move(item, step.partner, heavy);
    at_max_ += full(heavy) + full(step.partner);
    by_cost_.insert({cost(heavy), heavy});
    by_cost_.insert({cost(step.partner), step.partner});
  }

  void move(std::uint32_t item, std::uint32_t from, std::uint32_t to) {
    if (item == none) return;
    auto& source = on_rank_[from];
    source.erase(std::lower_bound(source.begin(), source.end(), item));  // items are numbered by descending cost
    auto& target = on_rank_[to];
    target.insert(std::lower_bound(target.begin(), target.end(), item), item);
    const Problem::Item& moved = problem_.items[item];
    load_[from] -= moved.cost;
    load_[to] += moved.cost;
    count_[from] -= moved.count;
    count_[to] += moved.count;
    weight_[from] -= moved.weight;
    weight_[to] += moved.weight;
    rank_of_[item] = to;
  }

  const Problem& problem_;
  RefineOptions options_;
  std::vector<std::uint32_t> rank_of_;
  std::vector<Cost> load_;
  std::vector<std::uint32_t> count_;
  std::vector<std::uint64_t> weight_;
  std::vector<std::vector<std::uint32_t>> on_rank_;  ///< rank → its items, ascending number = descending cost
  std::set<std::pair<Cost, std::uint32_t>> by_cost_;
  Cost target_;
  std::uint32_t at_max_ = 0;  ///< ranks that hold max_count samples
};

}  // namespace detail

/// Refines `rank_of` (sample → rank), which must meet the constraints.
[[nodiscard]] inline Assignment refine(std::span<const Cost> costs, std::span<const std::uint32_t> rank_of,
                                       std::uint32_t ranks, const Constraints& constraints = {},
                                       const RefineOptions& options = {}) {
  const detail::Problem problem = detail::problem_of(costs, ranks, constraints);
  detail::require_size(rank_of.size(), costs.size(), "ranks of samples");
  std::vector<std::uint32_t> of_item(problem.items.size());
  for (std::size_t item = 0; item < of_item.size(); ++item) {
    of_item[item] = rank_of[problem.members.empty() ? problem.sample[item] : problem.members[item].front()];
  }
  const Cost bound = detail::constrained_bound(problem);
  return detail::assignment_of(problem, costs, detail::Refiner(problem, std::move(of_item), bound, options).run(),
                               "refine");
}

}  // namespace orch::balance
