// Parts of the micro-batch planner (../microbatch.hpp): setting the pace, packing under the cap, filling empty packs,
// shortening the slowest packs, and the lower bound on Σ over micro-batches of the largest rank cost.
//
// A group is a set of samples that share bins: the samples of one rank with K bins where samples stay at home, or all
// samples with K · ranks bins. `width` is the number of bins that a group has in every micro-batch.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "orchmllm/balance/greedy_onto.hpp"
#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/sort.hpp"

namespace orch::balance {

namespace detail {

inline constexpr std::uint32_t unplaced = std::numeric_limits<std::uint32_t>::max();

/// Samples that share bins: the samples of one rank with K bins, or all samples with K · ranks bins.
struct PackGroup {
  std::vector<std::uint32_t> by_cost;    ///< descending
  std::vector<std::uint32_t> by_tokens;  ///< descending
};

struct PackInput {
  std::span<const Cost> costs;
  std::span<const std::uint64_t> tokens;
  std::uint64_t cap;
  std::uint32_t width;  ///< bins of a group in every micro-batch
};

enum class Fit { found, impossible, unknown };

/// Exhaustive search for a packing of `order` into `bins`, given up after a fixed number of steps.
[[nodiscard]] inline std::pair<Fit, std::vector<std::uint32_t>> pack_exhaustively(std::span<const std::uint64_t> tokens,
                                                                                  std::span<const std::uint32_t> order,
                                                                                  std::size_t bins, std::uint64_t cap) {
  std::uint32_t steps = 50'000;
  std::vector<std::uint64_t> room(bins, cap);
  std::vector<std::uint32_t> bin_of(order.size());
  const auto place = [&](const auto& self, std::size_t i) -> Fit {
    if (i == order.size()) return Fit::found;
    if (steps == 0) return Fit::unknown;
    --steps;
    for (std::size_t bin = 0; bin < bins; ++bin) {
      const auto earlier = room.begin() + static_cast<std::ptrdiff_t>(bin);
      // A bin with the same room as an earlier one gives the same packings.
      if (room[bin] < tokens[order[i]] || std::find(room.begin(), earlier, room[bin]) != earlier) continue;
      room[bin] -= tokens[order[i]];
      bin_of[i] = static_cast<std::uint32_t>(bin);
      const Fit fit = self(self, i + 1);
      room[bin] += tokens[order[i]];
      if (fit != Fit::impossible) return fit;
    }
    return Fit::impossible;
  };
  const Fit fit = place(place, 0);
  return {fit, std::move(bin_of)};
}

/// What every micro-batch should cost, and where the samples that set it are.
struct Pace {
  std::vector<Cost> level;             ///< micro-batch → cost, descending
  std::vector<std::uint32_t> slot_of;  ///< sample → microbatch · width + bin, or unplaced
};

/// A sample above the mean of the micro-batches left sets the pace of the next one; other such samples that fit under
/// that pace join it, so that long samples are waited for together. All groups keep one pace.
[[nodiscard]] inline Pace set_pace(const PackInput& in, std::span<const PackGroup> groups, std::uint32_t microbatches) {
  Pace pace{std::vector<Cost>(microbatches, 0), std::vector<std::uint32_t>(in.costs.size(), unplaced)};
  std::vector<Cost> rest(groups.size(), 0);
  std::vector<std::size_t> head(groups.size(), 0);  // first sample without a place
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::uint32_t sample : groups[g].by_cost) rest[g] = checked_add(rest[g], in.costs[sample]);
  }
  const std::vector<Cost> no_load(in.width, 0);
  const std::vector<std::uint64_t> room(in.width, in.cap);
  for (std::uint32_t k = 0; k < microbatches; ++k) {
    Cost mean = 0;
    Cost largest = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto& order = groups[g].by_cost;
      while (head[g] < order.size() && pace.slot_of[order[head[g]]] != unplaced) ++head[g];
      mean = std::max(mean, ceil_div(rest[g], std::uint64_t{in.width} * (microbatches - k)));
      if (head[g] < order.size()) largest = std::max(largest, in.costs[order[head[g]]]);
    }
    if (largest <= mean) {
      std::fill(pace.level.begin() + k, pace.level.end(), mean);
      break;
    }
    pace.level[k] = largest;
    Cost mean_after = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      rest[g] = largest > rest[g] / in.width ? 0 : rest[g] - largest * in.width;
      if (k + 1 < microbatches) {
        mean_after = std::max(mean_after, ceil_div(rest[g], std::uint64_t{in.width} * (microbatches - k - 1)));
      }
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
      // What would set the pace of a later micro-batch is better off in this one.
      const auto& order = groups[g].by_cost;
      if (head[g] == order.size() || in.costs[order[head[g]]] <= mean_after) continue;
      LoadTree bins(no_load, room);
      for (std::size_t i = head[g]; i < order.size() && in.costs[order[i]] > mean_after; ++i) {
        const std::uint32_t sample = order[i];
        if (pace.slot_of[sample] != unplaced) continue;
        const auto bin = bins.least_loaded(in.tokens[sample]);
        if (!bin || in.costs[sample] > largest - std::min(largest, bins.load(*bin))) continue;
        bins.add(*bin, in.costs[sample], in.tokens[sample]);
        pace.slot_of[sample] = k * in.width + *bin;
      }
    }
  }
  return pace;
}

/// `samples` by descending share of a micro-batch, in cost or in tokens, whichever is larger: what is hard to place for
/// either reason comes early.
[[nodiscard]] inline std::vector<std::uint32_t> by_larger_share(std::span<const Cost> cost,
                                                                std::span<const std::uint64_t> tokens,
                                                                std::span<const std::uint32_t> samples, Cost level,
                                                                std::uint64_t cap) {
  // Shares in units of 2^-24, by shifting both sides down where the product would not fit.
  const auto share = [](std::uint64_t part, std::uint64_t whole) -> std::uint64_t {
    const int shift = std::max(0, static_cast<int>(std::bit_width(part)) - 40);
    return ((part >> shift) << 24U) / std::max<std::uint64_t>(whole >> shift, 1);
  };
  std::vector<Cost> larger(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    larger[i] = std::max(share(cost[samples[i]], level), share(tokens[samples[i]], cap));
  }
  std::vector<std::uint32_t> order = descending_order(larger);
  for (std::uint32_t& position : order) position = samples[position];
  return order;
}

/// Slots for the samples of one group, by position in `by_cost`: around the samples that set the pace by descending
/// cost, else by the larger share, by descending tokens, or first fit; then without regard to the pace; then
/// exhaustively.
[[nodiscard]] inline std::pair<Fit, std::vector<std::uint32_t>> pack_group(const PackInput& in, const PackGroup& group,
                                                                           const Pace& pace) {
  const std::size_t n = group.by_cost.size();
  const auto microbatches = pace.level.size();
  const std::size_t slots = microbatches * in.width;
  std::vector<Cost> head_start(slots);
  for (std::size_t slot = 0; slot < slots; ++slot) head_start[slot] = pace.level[0] - pace.level[slot / in.width];
  const std::vector<std::uint64_t> room(slots, in.cap);

  // Group-local arrays, samples by descending cost: position → cost, tokens, slot.
  std::vector<Cost> cost(n);
  std::vector<std::uint64_t> tokens(n);
  std::vector<std::uint32_t> rest;
  std::vector<Cost> loads = head_start;
  std::vector<std::uint64_t> rooms = room;
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t sample = group.by_cost[i];
    cost[i] = in.costs[sample];
    tokens[i] = in.tokens[sample];
    if (pace.slot_of[sample] == unplaced) {
      rest.push_back(i);
    } else {
      loads[pace.slot_of[sample]] = checked_add(loads[pace.slot_of[sample]], cost[i]);
      rooms[pace.slot_of[sample]] -= tokens[i];
    }
  }
  const std::vector<std::uint32_t> by_tokens = descending_order(tokens);
  std::vector<std::uint32_t> rest_by_tokens;
  for (const std::uint32_t i : by_tokens) {
    if (pace.slot_of[group.by_cost[i]] == unplaced) rest_by_tokens.push_back(i);
  }
  // First fit: the lowest bin that has room is the least loaded one where a bin's load is its number.
  std::vector<Cost> number(slots);
  std::iota(number.begin(), number.end(), Cost{0});
  const std::vector<Cost> free(n, 0);

  auto around = greedy_onto(cost, tokens, rest, loads, rooms);
  if (!around)
    around = greedy_onto(cost, tokens, by_larger_share(cost, tokens, rest, pace.level[0], in.cap), loads, rooms);
  if (!around) around = greedy_onto(cost, tokens, rest_by_tokens, loads, rooms);
  if (!around) around = greedy_onto(free, tokens, rest_by_tokens, number, rooms);
  if (around) {
    for (std::uint32_t i = 0; i < n; ++i) {
      if (pace.slot_of[group.by_cost[i]] != unplaced) (*around)[i] = pace.slot_of[group.by_cost[i]];
    }
    return {Fit::found, std::move(*around)};
  }
  if (rest.size() < n) {
    auto anew = greedy_onto(cost, tokens, by_tokens, head_start, room);
    if (!anew) anew = greedy_onto(free, tokens, by_tokens, number, room);
    if (anew) return {Fit::found, std::move(*anew)};
  }
  constexpr std::size_t exhaustive_samples = 40;
  if (n > exhaustive_samples) return {Fit::unknown, {}};
  auto [fit, bins] = pack_exhaustively(tokens, by_tokens, slots, in.cap);
  std::vector<std::uint32_t> slot_of(n);
  for (std::size_t i = 0; i < n; ++i) slot_of[by_tokens[i]] = bins[i];
  return {fit, std::move(slot_of)};
}

/// Packs with their samples; `cost` and `tokens` are kept up to date by every change.
struct Pack {
  std::vector<std::uint32_t> samples;
  Cost cost = 0;
  std::uint64_t tokens = 0;
};

/// Moves the cheapest samples of full packs into empty ones until none is empty or every pack has at most one sample.
inline void fill_empty(const PackInput& in, std::span<Pack> packs) {
  std::vector<Pack*> empty;
  for (Pack& pack : packs) {
    if (pack.samples.empty()) empty.push_back(&pack);
  }
  if (empty.empty()) return;
  using Donor = std::pair<Cost, std::size_t>;
  std::vector<Donor> donors;  // heap: most expensive first, ties to the lower pack
  const auto below = [](const Donor& a, const Donor& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  };
  for (std::size_t p = 0; p < packs.size(); ++p) {
    if (packs[p].samples.size() > 1) donors.emplace_back(packs[p].cost, p);
  }
  std::make_heap(donors.begin(), donors.end(), below);
  for (Pack* receiver : empty) {
    if (donors.empty()) return;
    std::pop_heap(donors.begin(), donors.end(), below);
    Pack& donor = packs[donors.back().second];
    const auto cheapest =
        std::min_element(donor.samples.begin(), donor.samples.end(), [&](std::uint32_t a, std::uint32_t b) {
          return in.costs[a] != in.costs[b] ? in.costs[a] < in.costs[b] : a < b;
        });
    const std::uint32_t sample = *cheapest;
    donor.samples.erase(cheapest);
    donor.cost -= in.costs[sample];
    donor.tokens -= in.tokens[sample];
    *receiver = {{sample}, in.costs[sample], in.tokens[sample]};
    if (donor.samples.size() > 1) {
      donors.back().first = donor.cost;
      std::push_heap(donors.begin(), donors.end(), below);
    } else {
      donors.pop_back();
    }
  }
}

/// Shortens the slowest packs: a sample moves out of the slowest pack of a micro-batch, or changes places with a
/// cheaper one, where no other maximum grows. packs[microbatch · ranks + rank].
class MicrobatchRefiner {
 public:
  MicrobatchRefiner(const PackInput& in, std::vector<Pack>& packs, std::uint32_t ranks, bool may_move)
      : in_(in), packs_(packs), ranks_(ranks), microbatches_(packs.size() / ranks), may_move_(may_move) {}

  void run() {
    // Work is bounded by the size of the plan, so that planning time is predictable.
    std::size_t steps = std::clamp<std::size_t>(4'000'000 / (packs_.size() + 64), 16, 4'096);
    for (int round = 0; round < 2; ++round) {
      for (std::size_t k = 0; k < microbatches_; ++k) {
        while (steps > 0 && shorten(k)) --steps;
      }
    }
  }

 private:
  struct Extremes {
    std::size_t slowest = 0;
    std::size_t fastest = 0;
    Cost second = 0;
  };
  struct Exchange {
    Cost gain = 0;
    Cost shift = 0;
    std::size_t to = 0;
    std::size_t give = 0;
    std::optional<std::size_t> take;
  };

  [[nodiscard]] Extremes extremes(std::size_t k) const {
    Extremes e{k * ranks_, k * ranks_, 0};
    for (std::size_t p = k * ranks_ + 1; p < (k + 1) * ranks_; ++p) {
      if (packs_[p].cost > packs_[e.slowest].cost) {
        e.second = packs_[e.slowest].cost;
        e.slowest = p;
      } else {
        e.second = std::max(e.second, packs_[p].cost);
      }
      if (packs_[p].cost < packs_[e.fastest].cost) e.fastest = p;
    }
    return e;
  }

  [[nodiscard]] bool shorten(std::size_t k) {
    const Extremes here = extremes(k);
    const Pack& from = packs_[here.slowest];
    Exchange best;
    // A tie for the slowest is worth breaking: the next step may shorten the other one.
    const Cost useful = ranks_ == 1 ? from.cost : std::max<Cost>(from.cost - here.second, 1);
    const std::size_t rank = here.slowest % ranks_;
    for (std::size_t other = 0; other < microbatches_; ++other) {
      if (other == k) {
        if (may_move_ && here.fastest != here.slowest && from.cost > 0)
          consider(here, here.fastest, from.cost - 1, useful, best);
        continue;
      }
      const Extremes there = extremes(other);
      const Cost ceiling = packs_[there.slowest].cost;
      consider(here, other * ranks_ + rank, ceiling, useful, best);
      if (may_move_ && there.fastest != other * ranks_ + rank) consider(here, there.fastest, ceiling, useful, best);
    }
    if (best.gain == 0) return false;
    apply(here.slowest, best);
    return true;
  }

  /// Best exchange between the slowest pack and pack `to`, whose cost may grow to `ceiling`.
  void consider(const Extremes& here, std::size_t to, Cost ceiling, Cost useful, Exchange& best) const {
    const Pack& from = packs_[here.slowest];
    const Pack& target = packs_[to];
    if (target.cost >= ceiling) return;
    const Cost slack = ceiling - target.cost;
    const bool same = to / ranks_ == here.slowest / ranks_;
    const auto offer = [&](Cost shift, std::size_t give, std::optional<std::size_t> take) {
      const Cost after = same ? std::max(from.cost - shift, target.cost + shift) : from.cost - shift;
      const Cost gain = std::min(from.cost - after, useful);
      if (gain > best.gain || (gain == best.gain && gain > 0 && shift < best.shift))
        best = {gain, shift, to, give, take};
    };
    constexpr std::size_t looked_at = 48;
    const std::size_t gives = std::min(from.samples.size(), looked_at);
    const std::size_t takes = std::min(target.samples.size(), looked_at);
    for (std::size_t i = 0; i < gives; ++i) {
      const Cost given = in_.costs[from.samples[i]];
      const std::uint64_t given_tokens = in_.tokens[from.samples[i]];
      if (from.samples.size() > 1 && given > 0 && given <= slack && given_tokens <= in_.cap - target.tokens) {
        offer(given, i, std::nullopt);
      }
      for (std::size_t j = 0; j < takes; ++j) {
        const Cost taken = in_.costs[target.samples[j]];
        if (taken >= given || given - taken > slack) continue;
        const std::uint64_t taken_tokens = in_.tokens[target.samples[j]];
        if (given_tokens > in_.cap - (target.tokens - taken_tokens)) continue;
        if (taken_tokens > in_.cap - (from.tokens - given_tokens)) continue;
        offer(given - taken, i, j);
      }
    }
  }

  void apply(std::size_t slowest, const Exchange& exchange) {
    Pack& from = packs_[slowest];
    Pack& to = packs_[exchange.to];
    const std::uint32_t given = from.samples[exchange.give];
    from.cost -= exchange.shift;
    to.cost += exchange.shift;
    from.tokens -= in_.tokens[given];
    to.tokens += in_.tokens[given];
    if (exchange.take) {
      const std::uint32_t taken = to.samples[*exchange.take];
      from.tokens += in_.tokens[taken];
      to.tokens -= in_.tokens[taken];
      std::swap(from.samples[exchange.give], to.samples[*exchange.take]);
    } else {
      from.samples.erase(from.samples.begin() + static_cast<std::ptrdiff_t>(exchange.give));
      to.samples.push_back(given);
    }
  }

  const PackInput& in_;
  std::vector<Pack>& packs_;
  std::size_t ranks_;
  std::size_t microbatches_;
  bool may_move_;
};

/// Bounds on the j largest maxima of a group: each one alone (`largest`), and all from the j-th on together (`rest`).
struct LayerBounds {
  std::vector<Cost> largest;
  std::vector<Cost> rest;
};

/// Most cost that any samples of at most `budget` tokens carry. For every integer density ρ, such samples cost at most
/// ρ · budget + Σ max(0, cost − ρ · tokens): the dual of the fractional knapsack, near its optimum for the density at
/// which the densest samples fill the budget.
class DensestSamples {
 public:
  DensestSamples(const PackInput& in, std::span<const std::uint32_t> samples) {
    std::vector<Cost> density(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::uint64_t tokens = in.tokens[samples[i]];
      density[i] = tokens == 0 ? std::numeric_limits<Cost>::max() : in.costs[samples[i]] / tokens;
    }
    const std::vector<std::uint32_t> order = descending_order(density);
    for (const std::uint32_t i : order) {
      density_.push_back(density[i]);
      cost_.push_back(checked_add(cost_.back(), in.costs[samples[i]]));
      tokens_.push_back(checked_add(tokens_.back(), in.tokens[samples[i]]));
    }
  }

  [[nodiscard]] Cost total() const { return cost_.back(); }

  [[nodiscard]] Cost most(std::uint64_t budget) const {
    if (budget >= tokens_.back()) return total();
    // The first sample that does not fit entirely; it has tokens, so its density is finite.
    const auto full = std::upper_bound(tokens_.begin(), tokens_.end(), budget) - tokens_.begin();
    const Cost rho = density_[static_cast<std::size_t>(full) - 1];
    return std::min({total(), dual(rho, budget), dual(rho + 1, budget)});
  }

 private:
  [[nodiscard]] Cost dual(Cost rho, std::uint64_t budget) const {
    const auto denser = std::partition_point(density_.begin(), density_.end(), [&](Cost d) { return d >= rho; });
    const auto count = static_cast<std::size_t>(denser - density_.begin());
    // ρ · tokens of samples at least that dense is at most their cost; ρ · (budget − tokens) may be beyond any sum.
    if (budget < tokens_[count]) return cost_[count] - rho * (tokens_[count] - budget);
    Cost filled = 0;
    if (__builtin_mul_overflow(rho, budget - tokens_[count], &filled)) return total();
    return filled > total() - cost_[count] ? total() : cost_[count] + filled;
  }

  std::vector<Cost> density_;
  std::vector<Cost> cost_{0};             ///< of the densest i samples
  std::vector<std::uint64_t> tokens_{0};  ///< of the densest i samples
};

/// Micro-batches from the j-th on (by descending maximum) hold at least as many samples, tokens and costs as the first
/// j − 1 cannot take; all of these samples cost at most the j-th maximum.
[[nodiscard]] inline LayerBounds layer_bounds(const PackInput& in, const PackGroup& group, std::uint32_t microbatches) {
  LayerBounds bounds{std::vector<Cost>(microbatches, 0), std::vector<Cost>(microbatches, 0)};
  const auto& order = group.by_cost;
  const std::size_t n = order.size();
  if (n == 0) return bounds;
  std::vector<std::uint64_t> tokens_from(n + 1, 0);  // of the samples order[i …]
  for (std::size_t i = n; i-- > 0;) tokens_from[i] = checked_add(tokens_from[i + 1], in.tokens[order[i]]);
  const DensestSamples densest(in, order);
  const std::uint64_t slots = std::uint64_t{microbatches} * in.width;
  const std::uint64_t empty = slots - std::min<std::uint64_t>(slots, n);
  std::uint64_t before = 0;  // tokens that the first j micro-batches can take
  for (std::uint32_t j = 0; j < microbatches; ++j) {
    const std::uint64_t slots_left = slots - std::uint64_t{j} * in.width;
    const std::uint64_t samples_left = j == 0 ? n : slots_left - std::min(slots_left, empty);
    std::size_t first = n - std::min<std::size_t>(n, samples_left);
    if (tokens_from[0] > before) {
      // The cheapest samples with at least tokens_from[0] − before tokens: the last i with that many from it on.
      const std::uint64_t needed = tokens_from[0] - before;
      const auto less = std::partition_point(tokens_from.begin(), tokens_from.end(),
                                             [&](std::uint64_t from) { return from >= needed; });
      first = std::min(first, static_cast<std::size_t>(less - tokens_from.begin()) - 1);
    }
    if (first < n) bounds.largest[j] = in.costs[order[first]];
    bounds.rest[j] = ceil_div(densest.total() - (j == 0 ? 0 : densest.most(before)), in.width);
    std::uint64_t taken = 0;
    if (__builtin_mul_overflow(in.cap, std::uint64_t{in.width}, &taken) || taken > tokens_from[0] - before) {
      before = tokens_from[0];
    } else {
      before += taken;
    }
  }
  return bounds;
}

/// Bound on Σ of maxima: the first j − 1 one by one and the others together, for the best j.
[[nodiscard]] inline Cost step_bound(const PackInput& in, std::span<const PackGroup> groups,
                                     std::uint32_t microbatches) {
  LayerBounds all{std::vector<Cost>(microbatches, 0), std::vector<Cost>(microbatches, 0)};
  for (const PackGroup& group : groups) {
    const LayerBounds own = layer_bounds(in, group, microbatches);
    for (std::uint32_t j = 0; j < microbatches; ++j) {
      all.largest[j] = std::max(all.largest[j], own.largest[j]);
      all.rest[j] = std::max(all.rest[j], own.rest[j]);
    }
  }
  Cost best = checked_sum(all.largest);
  Cost before = 0;
  for (std::uint32_t j = 0; j < microbatches; ++j) {
    best = std::max(best, checked_add(before, all.rest[j]));
    before += all.largest[j];
  }
  return best;
}

}  // namespace detail

}  // namespace orch::balance
