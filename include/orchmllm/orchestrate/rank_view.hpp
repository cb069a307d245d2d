// What one rank needs of a step plan: a few kilobytes, whatever the number of ranks.
//
// Slots are local: the rank's items of a phase, numbered from 0 in the order of the layout; before a route from home,
// and after one into the LLM or another encoder, the items that the route carries, in order of sample and unit. `pack`
// lists the slots in the order of the send buffers, `unpack` those in the order of the receive buffers; runs follow one
// another without gaps, so offsets are running sums of their elements. LLM sequences are packed sample after sample; an
// encoder output is written at its `sequence_position`, text fills the rest in order. Complexity: O(items and peers of
// the rank). Guarantee: verify() of all ranks' views holds for every valid plan.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/orchestrate/step_plan.hpp"

namespace orch {

/// One run of the buffers shared with a peer.
struct PeerRun {
  std::uint32_t rank = 0;
  std::uint32_t items = 0;
  std::vector<std::uint64_t> elements;  ///< by field

  friend bool operator==(const PeerRun&, const PeerRun&) = default;
};

/// One rank's part of one all-to-all.
struct ExchangeView {
  std::vector<Field> fields;
  std::vector<PeerRun> sends;     ///< by receiver, in the order of the send buffers
  std::vector<PeerRun> receives;  ///< by sender
  std::vector<std::uint32_t> pack;
  std::vector<std::uint32_t> unpack;
  std::vector<std::vector<std::uint32_t>> pack_length;    ///< field → length of every packed item
  std::vector<std::vector<std::uint32_t>> unpack_length;  ///< field → length of every unpacked item
  /// Encoder outputs that reach the LLM: where every unpacked item begins in the rank's LLM sequence; else empty.
  std::vector<std::uint64_t> sequence_position;
  /// Encoder outputs that reach another encoder: the slot there of the unit made from every unpacked item; else empty.
  std::vector<std::uint32_t> target_slot;
  bool identity = false;  ///< on all ranks: nothing to send, nothing to copy

  friend bool operator==(const ExchangeView&, const ExchangeView&) = default;
};

struct RouteView {
  std::string from;                  ///< phase, or "home"
  std::string to;                    ///< phase
  std::vector<ExchangeView> stages;  ///< one, or inside, gather, between, scatter
};

struct PhaseView {
  std::string phase;
  std::vector<std::uint32_t> sample;  ///< slot → index into the global batch
  std::vector<std::uint32_t> unit;    ///< slot → number of the unit in its sample
  std::vector<std::uint32_t> length;  ///< slot → tokens
  Cost cost = 0;
  bool dummy = false;  ///< no tokens here: run a dummy, so that collectives match
};

/// What a loss is divided by, and what this rank holds of it.
struct LossView {
  std::uint64_t tokens = 0, all_tokens = 0;
  std::uint64_t supervised = 0, all_supervised = 0;
  std::uint64_t samples = 0, all_samples = 0;
};

struct RankView {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  std::uint64_t plan_hash = 0;
  std::vector<PhaseView> phases;
  std::vector<RouteView> routes;
  LossView loss;
};

namespace detail {

[[nodiscard]] inline ExchangeView exchange_view(const ExchangePlan& plan, std::uint32_t rank) {
  ExchangeView view;
  view.identity = plan.identity;
  view.pack_length.resize(plan.fields());
  view.unpack_length.resize(plan.fields());
  for (const Payload& payload : plan.payload) view.fields.push_back(payload.field);
  // Items without an element are left out: where a stage does not concern an item, it must not write its slot.
  const auto has_elements = [&](std::uint32_t slot) {
    return std::any_of(plan.payload.begin(), plan.payload.end(), [&](const Payload& p) { return p.length[slot] > 0; });
  };
  const auto run = [&](std::uint32_t t, std::uint32_t peer) {
    PeerRun result{peer, 0, {}};
    const auto first = plan.pack.begin() + plan.transfers[t].first_packed;
    result.items = static_cast<std::uint32_t>(std::count_if(first, first + plan.transfers[t].items, has_elements));
    for (std::size_t f = 0; f < plan.fields(); ++f) result.elements.push_back(plan.part(t, f).elements);
    return result;
  };
  for (std::uint32_t t = plan.first_send[rank]; t < plan.first_send[rank + 1]; ++t) {
    const Transfer& transfer = plan.transfers[t];
    view.sends.push_back(run(t, transfer.to));
    for (std::uint32_t i = 0; i < transfer.items; ++i) {
      const std::uint32_t slot = plan.pack[transfer.first_packed + i];
      if (!has_elements(slot)) continue;
      view.pack.push_back(slot - plan.moves.first_before[rank]);
      for (std::size_t f = 0; f < plan.fields(); ++f) view.pack_length[f].push_back(plan.payload[f].length[slot]);
    }
  }
  for (const std::uint32_t t : plan.receives(rank)) {
    const Transfer& transfer = plan.transfers[t];
    view.receives.push_back(run(t, transfer.from));
    for (std::uint32_t i = 0; i < transfer.items; ++i) {
      const std::uint32_t slot = plan.pack[transfer.first_packed + i];
      if (!has_elements(slot)) continue;
      view.unpack.push_back(plan.unpack[transfer.first_unpacked + i] - plan.moves.first_after[rank]);
      for (std::size_t f = 0; f < plan.fields(); ++f) view.unpack_length[f].push_back(plan.payload[f].length[slot]);
    }
  }
  return view;
}

[[nodiscard]] inline PhaseView phase_view(const PhasePlan& plan, std::uint32_t rank) {
  PhaseView view;
  view.phase = plan.phase;
  view.cost = plan.assignment.rank_cost[rank];
  view.dummy = std::binary_search(plan.empty_ranks.begin(), plan.empty_ranks.end(), rank);
  for (const std::uint32_t item : plan.layout.items(rank)) {
    const std::uint32_t sample = plan.sample_of[item];
    const auto first = std::lower_bound(plan.sample_of.begin(), plan.sample_of.begin() + item, sample);
    view.sample.push_back(sample);
    view.unit.push_back(item - static_cast<std::uint32_t>(first - plan.sample_of.begin()));
    view.length.push_back(plan.length[item]);
  }
  return view;
}

/// slot (local) of the rank's LLM layout → where its sample begins in the rank's LLM sequence.
[[nodiscard]] inline std::vector<std::uint64_t> sample_starts(const PhasePlan& llm, std::uint32_t rank) {
  std::vector<std::uint64_t> starts{0};
  for (const std::uint32_t sample : llm.layout.items(rank)) starts.push_back(starts.back() + llm.length[sample]);
  return starts;
}

/// Slot after (local) of a route into the LLM → where the item begins in the rank's LLM sequence.
[[nodiscard]] inline std::vector<std::uint64_t> sequence_positions(const StepPlan& plan, const Route& route,
                                                                   std::uint32_t rank) {
  const ExchangePlan& exchange = route.exchange;
  const PhasePlan& encoder = plan.phases[route.from];
  const Layout& llm = plan.llm().layout;
  const std::vector<std::uint64_t> starts = sample_starts(plan.llm(), rank);
  std::vector<std::uint64_t> position(exchange.moves.first_after[rank + 1] - exchange.moves.first_after[rank], 0);
  for (const std::uint32_t t : exchange.receives(rank)) {
    const Transfer& transfer = exchange.transfers[t];
    for (std::uint32_t i = 0; i < transfer.items; ++i) {
      const std::uint32_t item = encoder.layout.item_at[exchange.pack[transfer.first_packed + i]];
      const std::uint32_t slot = exchange.unpack[transfer.first_unpacked + i] - exchange.moves.first_after[rank];
      position[slot] = starts[llm.slot_of[encoder.sample_of[item]] - llm.first[rank]] + encoder.position[item];
    }
  }
  return position;
}

/// Slot after (local) of a route into an encoder → slot (local) of the unit there that is made from the item: units of
/// a sample follow those of its producers, producer by producer.
[[nodiscard]] inline std::vector<std::uint32_t> target_slots(const StepPlan& plan, const Route& route,
                                                             std::uint32_t rank) {
  const auto first_of = [](const PhasePlan& phase, std::uint32_t sample) {
    const auto first = std::lower_bound(phase.sample_of.begin(), phase.sample_of.end(), sample);
    return static_cast<std::uint32_t>(first - phase.sample_of.begin());
  };
  const ExchangePlan& exchange = route.exchange;
  const PhasePlan& producer = plan.phases[route.from];
  const PhasePlan& consumer = plan.phases[route.to];
  std::vector<std::uint32_t> target(exchange.moves.first_after[rank + 1] - exchange.moves.first_after[rank], 0);
  for (const std::uint32_t t : exchange.receives(rank)) {
    const Transfer& transfer = exchange.transfers[t];
    for (std::uint32_t i = 0; i < transfer.items; ++i) {
      const std::uint32_t item = producer.layout.item_at[exchange.pack[transfer.first_packed + i]];
      const std::uint32_t sample = producer.sample_of[item];
      std::uint32_t unit = first_of(consumer, sample) + item - first_of(producer, sample);
      for (const Route& other : plan.routes) {
        if (other.is_input() || other.to != route.to || other.from >= route.from) continue;
        unit += first_of(plan.phases[other.from], sample + 1) - first_of(plan.phases[other.from], sample);
      }
      const std::uint32_t slot = exchange.unpack[transfer.first_unpacked + i] - exchange.moves.first_after[rank];
      target[slot] = consumer.layout.slot_of[unit] - consumer.layout.first[rank];
    }
  }
  return target;
}

[[nodiscard]] inline RouteView route_view(const StepPlan& plan, const Route& route, std::uint32_t rank) {
  RouteView view{route.is_input() ? "home" : plan.phases[route.from].phase, plan.phases[route.to].phase, {}};
  if (route.stages) {
    for (const ExchangePlan* stage : route.stages->stages()) view.stages.push_back(exchange_view(*stage, rank));
  } else {
    view.stages.push_back(exchange_view(route.exchange, rank));
  }
  if (route.is_input()) return view;
  // Items arrive in the only stage, or by the first (inside) and the last (scatter).
  const auto place = [&](auto list, const auto& at) {
    for (const std::size_t arrives : {std::size_t{0}, view.stages.size() - 1}) {
      ExchangeView& stage = view.stages[arrives];
      (stage.*list).clear();
      for (const std::uint32_t slot : stage.unpack) (stage.*list).push_back(at[slot]);
    }
  };
  if (route.to + 1 == plan.phases.size()) {
    place(&ExchangeView::sequence_position, sequence_positions(plan, route, rank));
  } else {
    place(&ExchangeView::target_slot, target_slots(plan, route, rank));
  }
  return view;
}

}  // namespace detail

/// Throws InvalidInput for a rank out of range.
[[nodiscard]] inline RankView rank_view(const StepPlan& plan, std::uint32_t rank) {
  if (rank >= plan.ranks()) {
    throw InvalidInput("rank " + std::to_string(rank) + " of a plan for " + std::to_string(plan.ranks()) + " ranks");
  }
  RankView view{rank, plan.ranks(), plan.hash, {}, {}, {}};
  for (const PhasePlan& phase : plan.phases) view.phases.push_back(detail::phase_view(phase, rank));
  for (const Route& route : plan.routes) view.routes.push_back(detail::route_view(plan, route, rank));
  view.loss = {plan.loss.tokens[rank],     LossCounts::total(plan.loss.tokens),
               plan.loss.supervised[rank], LossCounts::total(plan.loss.supervised),
               plan.loss.samples[rank],    LossCounts::total(plan.loss.samples)};
  return view;
}

namespace detail {

/// Throws InvalidInput if `view` is not that of `rank`, or of another step than `first`.
inline void require_same_step(const RankView& view, std::uint32_t rank, const RankView& first, std::size_t ranks) {
  const std::string name = "rank " + std::to_string(rank);
  if (view.rank != rank || view.ranks != ranks) {
    throw InvalidInput(name + " calls itself " + std::to_string(view.rank) + " of " + std::to_string(view.ranks) +
                       ", expected " + std::to_string(rank) + " of " + std::to_string(ranks));
  }
  if (view.plan_hash != first.plan_hash) {
    throw InvalidInput(name + " has plan " + hex(view.plan_hash) + ", rank 0 has " + hex(first.plan_hash));
  }
  if (view.routes.size() != first.routes.size()) {
    throw InvalidInput(name + " has " + std::to_string(view.routes.size()) + " exchanges, rank 0 has " +
                       std::to_string(first.routes.size()));
  }
  for (std::size_t r = 0; r < view.routes.size(); ++r) {
    const RouteView& route = view.routes[r];
    const RouteView& other = first.routes[r];
    if (route.from != other.from || route.to != other.to) {
      throw InvalidInput(name + " runs " + route.from + " -> " + route.to + " where rank 0 runs " + other.from +
                         " -> " + other.to);
    }
    for (std::size_t s = 0; s < std::min(route.stages.size(), other.stages.size()); ++s) {
      if (route.stages[s].fields == other.stages[s].fields && route.stages[s].identity == other.stages[s].identity) {
        continue;
      }
      throw InvalidInput(name + " carries other fields than rank 0 in " + route.from + " -> " + route.to);
    }
    if (route.stages.size() == other.stages.size()) continue;
    throw InvalidInput(name + " runs " + route.from + " -> " + route.to + " in " + std::to_string(route.stages.size()) +
                       " stages, rank 0 in " + std::to_string(first.routes[r].stages.size()));
  }
}

/// What a pair of ranks says of one run, sender first; throws InvalidInput if both do not say the same.
inline void require_same_run(const RouteView& route, std::pair<std::uint32_t, std::uint32_t> ranks, const PeerRun* sent,
                             const PeerRun* received) {
  if (sent != nullptr && received != nullptr && sent->items == received->items &&
      sent->elements == received->elements) {
    return;
  }
  const auto text = [](const PeerRun* run) {
    if (run == nullptr) return std::string("nothing");
    std::string elements;
    for (const std::uint64_t count : run->elements) elements += (elements.empty() ? "" : " + ") + std::to_string(count);
    return elements + " elements of " + std::to_string(run->items) + " items";
  };
  throw InvalidInput("exchange " + route.from + " -> " + route.to + ", ranks " + std::to_string(ranks.first) + " -> " +
                     std::to_string(ranks.second) + ": " + text(sent) + " sent, " + text(received) + " expected");
}

}  // namespace detail

/// Throws InvalidInput naming the first rank, or pair of ranks, that would not do the same step: before any payload
/// moves, from what every rank says of itself. `views[r]` is that of rank r.
inline void verify(std::span<const RankView> views) {
  if (views.empty()) return;
  for (std::uint32_t rank = 0; rank < views.size(); ++rank) {
    detail::require_same_step(views[rank], rank, views[0], views.size());
  }
  using Runs = std::array<const PeerRun*, 2>;  // sent, received
  for (std::size_t r = 0; r < views[0].routes.size(); ++r) {
    for (std::size_t stage = 0; stage < views[0].routes[r].stages.size(); ++stage) {
      std::map<std::pair<std::uint32_t, std::uint32_t>, Runs> pairs;
      for (const RankView& view : views) {
        const ExchangeView& exchange = view.routes[r].stages[stage];
        for (const PeerRun& run : exchange.sends) pairs[{view.rank, run.rank}][0] = &run;
        for (const PeerRun& run : exchange.receives) pairs[{run.rank, view.rank}][1] = &run;
      }
      for (const auto& [ranks, runs] : pairs) detail::require_same_run(views[0].routes[r], ranks, runs[0], runs[1]);
    }
  }
}

}  // namespace orch
