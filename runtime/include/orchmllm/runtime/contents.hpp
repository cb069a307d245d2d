// What lies where on a rank before and after a route, from layouts and positions alone.
//
// An exchange brings what its lists and counts say; these functions say what should be there when it is done, and take
// neither from those lists. So an exchange that misplaces an element is found by comparing with them.
// `made` is the buffer where a route begins: items packed in order of slot, field by field. `used` is where it ends: of
// raw inputs the phase's items in order of slot; of outputs into the LLM the rank's packed LLM sequences; of outputs
// into an encoder that encoder's items in order of slot.
// Complexity: O(items of the phases) a route. Units: bytes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "orchmllm/orchestrate/step_plan.hpp"
#include "orchmllm/runtime/payload.hpp"

namespace orch::runtime {

/// Extents of a buffer for each field, and the sizes of those buffers.
struct Contents {
  std::vector<Extent> extents;
  std::vector<std::uint64_t> bytes;  ///< by field
};

namespace detail {

/// item → number of the unit in its sample.
[[nodiscard]] inline std::vector<std::uint32_t> unit_numbers(const PhasePlan& phase) {
  std::vector<std::uint32_t> units(phase.sample_of.size(), 0);
  for (std::size_t i = 1; i < units.size(); ++i) {
    if (phase.sample_of[i] == phase.sample_of[i - 1]) units[i] = units[i - 1] + 1;
  }
  return units;
}

/// sample → its first item; one more entry than samples.
[[nodiscard]] inline std::vector<std::uint32_t> first_items(const PhasePlan& phase, std::size_t samples) {
  std::vector<std::uint32_t> first(samples + 1, 0);
  for (const std::uint32_t sample : phase.sample_of) ++first[sample + 1];
  for (std::size_t s = 0; s < samples; ++s) first[s + 1] += first[s];
  return first;
}

/// The phase whose items a route carries.
[[nodiscard]] inline const PhasePlan& carried_phase(const StepPlan& plan, const Route& route) {
  return plan.phases[route.is_input() ? route.to : route.from];
}

/// The layout that a route begins with.
[[nodiscard]] inline Layout layout_before(const StepPlan& plan, const Route& route) {
  if (!route.is_input()) return plan.phases[route.from].layout;
  return layout(home_of_items(plan, plan.phases[route.to]), plan.ranks());
}

/// field → item → bytes.
[[nodiscard]] inline std::vector<std::vector<std::uint64_t>> item_bytes(const Route& route, const Layout& before) {
  std::vector<std::vector<std::uint64_t>> bytes;
  for (const Payload& payload : route.exchange.payload) {
    std::vector<std::uint64_t>& field = bytes.emplace_back(before.size());
    for (std::size_t item = 0; item < before.size(); ++item) {
      field[item] = payload.length[before.slot_of[item]] * payload.field.bytes_per_length();
    }
  }
  return bytes;
}

/// The items of a rank one after the other.
[[nodiscard]] inline Contents in_order(const PhasePlan& phase, std::span<const std::uint32_t> items,
                                       const std::vector<std::vector<std::uint64_t>>& bytes) {
  const std::vector<std::uint32_t> unit = unit_numbers(phase);
  Contents contents;
  for (std::uint32_t f = 0; f < bytes.size(); ++f) {
    std::uint64_t offset = 0;
    for (const std::uint32_t item : items) {
      contents.extents.push_back({phase.sample_of[item], unit[item], f, offset, bytes[f][item]});
      offset += bytes[f][item];
    }
    contents.bytes.push_back(offset);
  }
  return contents;
}

/// Outputs in the rank's LLM sequences; text and other encoders' outputs are left out.
[[nodiscard]] inline Contents in_sequences(const StepPlan& plan, const Route& route, std::uint32_t rank) {
  const PhasePlan& from = plan.phases[route.from];
  const std::vector<std::uint32_t> first = first_items(from, plan.samples.size());
  const std::uint64_t row = route.exchange.payload[0].field.bytes_per_length();
  Contents contents;
  std::uint64_t start = 0;  // of the sample's sequence, tokens
  for (const std::uint32_t sample : plan.llm().layout.items(rank)) {
    for (std::uint32_t item = first[sample]; item < first[sample + 1]; ++item) {
      contents.extents.push_back(
          {sample, item - first[sample], 0, (start + from.position[item]) * row, from.output[item] * row});
    }
    start += plan.llm().length[sample];
  }
  contents.bytes.push_back(start * row);
  return contents;
}

/// Outputs as the items of an encoder that takes them: producer by producer in each sample.
[[nodiscard]] inline Contents in_encoder(const StepPlan& plan, const Route& route, std::uint32_t rank) {
  const PhasePlan& from = plan.phases[route.from];
  const PhasePlan& to = plan.phases[route.to];
  const std::vector<std::uint32_t> first = first_items(from, plan.samples.size());
  const std::vector<std::uint32_t> unit = unit_numbers(to);
  std::vector<std::uint32_t> earlier(plan.samples.size(), 0);  // units of the sample from producers before this one
  for (const Route& other : plan.routes) {
    if (other.is_input() || other.to != route.to || other.from >= route.from) continue;
    for (const std::uint32_t sample : plan.phases[other.from].sample_of) ++earlier[sample];
  }
  const std::uint64_t row = route.exchange.payload[0].field.bytes_per_length();
  Contents contents;
  std::uint64_t offset = 0;
  for (const std::uint32_t item : to.layout.items(rank)) {
    const std::uint32_t sample = to.sample_of[item];
    const std::uint64_t bytes = to.length[item] * row;
    const std::uint32_t units = first[sample + 1] - first[sample];
    if (unit[item] >= earlier[sample] && unit[item] - earlier[sample] < units) {
      contents.extents.push_back({sample, unit[item] - earlier[sample], 0, offset, bytes});
    }
    offset += bytes;
  }
  contents.bytes.push_back(offset);
  return contents;
}

}  // namespace detail

/// What a rank hands to a route.
[[nodiscard]] inline Contents made(const StepPlan& plan, const Route& route, std::uint32_t rank) {
  const Layout before = detail::layout_before(plan, route);
  return detail::in_order(detail::carried_phase(plan, route), before.items(rank), detail::item_bytes(route, before));
}

/// What a rank has of a route when it is done.
[[nodiscard]] inline Contents used(const StepPlan& plan, const Route& route, std::uint32_t rank) {
  if (route.is_input()) {
    const Layout before = detail::layout_before(plan, route);
    const PhasePlan& to = plan.phases[route.to];
    return detail::in_order(to, to.layout.items(rank), detail::item_bytes(route, before));
  }
  if (route.to + 1 == plan.phases.size()) return detail::in_sequences(plan, route, rank);
  return detail::in_encoder(plan, route, rank);
}

}  // namespace orch::runtime
