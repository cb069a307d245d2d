// A route as one rank executes it: which bytes are read, sent, received and written, by which all-to-all.
//
// A direct route is one leg. A node-first route is four: inside and gather in the first wave, then between, then
// scatter; memory in between is staging. On the way back (gradients) every leg is taken in the other direction: inside
// and scatter in the first wave, then between, then gather; what was received is sent from where it lies.
// Items of a leg are those of the rank view's lists, in their order. Complexity: O(items of the rank). Units: bytes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "orchmllm/orchestrate/rank_view.hpp"

namespace orch::runtime {

/// Buffers of a route, each with a part for every field.
enum class Place : std::uint8_t { made, gathered, arrived, used };

/// Items of one leg on one side, in the order of the buffers of messages.
struct ItemList {
  Place place = Place::made;
  std::vector<std::vector<std::uint64_t>> at;     ///< field → item → first byte in the place
  std::vector<std::vector<std::uint64_t>> bytes;  ///< field → item → size
  std::vector<PeerRun> runs;                      ///< by peer
};

/// One all-to-all.
struct Leg {
  ItemList out;
  ItemList in;
  bool identity = false;  ///< on all ranks: nothing is sent
};

struct RouteLegs {
  std::vector<std::uint64_t> element_bytes;                    ///< by field
  std::vector<std::vector<Leg>> waves;                         ///< legs of a wave run together
  std::array<std::vector<std::uint64_t>, 4> place_bytes = {};  ///< place → field → size
};

namespace detail {

/// Lists of slots with the lengths of their items, one of several that share a place.
struct SlotList {
  const std::vector<std::uint32_t>& slots;
  const std::vector<std::uint32_t>& lengths;
};

/// slot → first byte; one more entry than slots. Slots in no list are empty.
[[nodiscard]] inline std::vector<std::uint64_t> slot_starts(std::span<const SlotList> lists, std::uint64_t row) {
  std::vector<std::uint64_t> starts(1, 0);
  for (const SlotList& list : lists) {
    for (std::size_t i = 0; i < list.slots.size(); ++i) {
      if (list.slots[i] + 2 > starts.size()) starts.resize(list.slots[i] + std::size_t{2}, 0);
      starts[list.slots[i] + 1] = list.lengths[i] * row;
    }
  }
  for (std::size_t slot = 1; slot < starts.size(); ++slot) starts[slot] += starts[slot - 1];
  return starts;
}

[[nodiscard]] inline std::vector<std::uint64_t> rows(const std::vector<std::uint32_t>& lengths, std::uint64_t row) {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(lengths.size());
  for (const std::uint32_t length : lengths) bytes.push_back(length * row);
  return bytes;
}

[[nodiscard]] inline std::vector<std::uint64_t> at_slots(const std::vector<std::uint32_t>& slots,
                                                         const std::vector<std::uint64_t>& starts) {
  std::vector<std::uint64_t> at;
  at.reserve(slots.size());
  for (const std::uint32_t slot : slots) at.push_back(starts[slot]);
  return at;
}

/// Where each stage of a route reads and writes.
[[nodiscard]] inline std::vector<std::pair<Place, Place>> stage_places(std::size_t stages) {
  if (stages == 1) return {{Place::made, Place::used}};
  return {{Place::made, Place::used},
          {Place::made, Place::gathered},
          {Place::gathered, Place::arrived},
          {Place::arrived, Place::used}};
}

/// First bytes of the items that `stage` writes to the phase that uses them: in its LLM sequences, in the slots of an
/// encoder that takes them (`target` its lengths), or slot after slot.
[[nodiscard]] inline std::vector<std::uint64_t> used_at(const ExchangeView& stage, std::uint64_t row,
                                                        const PhaseView& target,
                                                        const std::vector<std::uint64_t>& slot_after_slot) {
  if (!stage.sequence_position.empty()) {
    std::vector<std::uint64_t> at;
    for (const std::uint64_t token : stage.sequence_position) at.push_back(token * row);
    return at;
  }
  if (stage.target_slot.empty()) return at_slots(stage.unpack, slot_after_slot);
  std::vector<std::uint64_t> starts(1, 0);
  for (const std::uint32_t length : target.length) starts.push_back(starts.back() + length * row);
  return at_slots(stage.target_slot, starts);
}

}  // namespace detail

/// How the rank of `view` runs a route. `used_bytes` is the size of what the route ends in, by field.
[[nodiscard]] inline RouteLegs route_legs(const RouteView& route, const PhaseView& target,
                                          std::vector<std::uint64_t> used_bytes) {
  const std::vector<ExchangeView>& stages = route.stages;
  const std::vector<std::pair<Place, Place>> places = detail::stage_places(stages.size());
  std::vector<Leg> legs(stages.size());
  RouteLegs result;
  for (std::size_t f = 0; f < stages[0].fields.size(); ++f) {
    const std::uint64_t row = stages[0].fields[f].bytes_per_length();
    result.element_bytes.push_back(stages[0].fields[f].element_bytes);
    // What a stage reads, an earlier one wrote; raw inputs and outputs are there from the beginning.
    std::array<std::vector<detail::SlotList>, 4> lists;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (places[s].first == Place::made) lists[0].push_back({stages[s].pack, stages[s].pack_length[f]});
      lists[static_cast<std::size_t>(places[s].second)].push_back({stages[s].unpack, stages[s].unpack_length[f]});
    }
    std::array<std::vector<std::uint64_t>, 4> starts;
    for (std::size_t p = 0; p < 4; ++p) {
      starts[p] = detail::slot_starts(lists[p], row);
      result.place_bytes[p].push_back(starts[p].back());
    }
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const auto& from = starts[static_cast<std::size_t>(places[s].first)];
      const auto& to = starts[static_cast<std::size_t>(places[s].second)];
      legs[s].out.at.push_back(detail::at_slots(stages[s].pack, from));
      legs[s].out.bytes.push_back(detail::rows(stages[s].pack_length[f], row));
      legs[s].in.at.push_back(places[s].second == Place::used ? detail::used_at(stages[s], row, target, to)
                                                              : detail::at_slots(stages[s].unpack, to));
      legs[s].in.bytes.push_back(detail::rows(stages[s].unpack_length[f], row));
    }
  }
  for (std::size_t s = 0; s < stages.size(); ++s) {
    legs[s].identity = stages[s].identity;
    legs[s].out.place = places[s].first;
    legs[s].in.place = places[s].second;
    legs[s].out.runs = stages[s].sends;
    legs[s].in.runs = stages[s].receives;
  }
  result.place_bytes[static_cast<std::size_t>(Place::used)] = std::move(used_bytes);
  if (legs.size() == 1) {
    result.waves.push_back(std::move(legs));
  } else {
    result.waves.resize(3);
    result.waves[0] = {std::move(legs[0]), std::move(legs[1])};
    result.waves[1] = {std::move(legs[2])};
    result.waves[2] = {std::move(legs[3])};
  }
  return result;
}

/// The way back.
[[nodiscard]] inline RouteLegs inverse(RouteLegs there) {
  if (there.waves.size() > 1) std::swap(there.waves[0][1], there.waves[2][0]);
  for (std::vector<Leg>& wave : there.waves) {
    for (Leg& leg : wave) std::swap(leg.out, leg.in);
  }
  return there;
}

}  // namespace orch::runtime
