// Carries exchanges and whole steps out by hand, element by element, from what the plan says and nothing else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "orchmllm/exchange/exchange_plan.hpp"
#include "orchmllm/exchange/hierarchical.hpp"

namespace orch::test {

/// rank → slot by slot the elements that an item brings of one field.
using Elements = std::vector<std::uint64_t>;
using Slots = std::vector<Elements>;  // local slot → elements
using Cluster = std::vector<Slots>;   // rank → slots

/// One field through one all-to-all: pack by the list, copy runs by their offsets, unpack by the list. `into` holds the
/// slots after (what earlier stages brought stays).
inline void exchange(const ExchangePlan& plan, std::size_t field, const Cluster& from, Cluster& into) {
  const Payload& payload = plan.payload[field];
  const auto count = [&](std::uint32_t slot) { return payload.length[slot] * payload.field.elements_per_length; };
  std::vector<Elements> send(plan.ranks());
  std::vector<Elements> receive(plan.ranks());
  for (std::uint32_t rank = 0; rank < plan.ranks(); ++rank) {
    for (const Transfer& transfer : plan.sends(rank)) {
      for (std::uint32_t i = 0; i < transfer.items; ++i) {
        const std::uint32_t slot = plan.pack[transfer.first_packed + i];
        if (count(slot) == 0) continue;  // items that a stage does not concern lie elsewhere
        const Elements& item = from[rank][slot - plan.moves.first_before[rank]];
        if (item.size() != count(slot)) throw Error("test: an item has another size than planned", 1);
        send[rank].insert(send[rank].end(), item.begin(), item.end());
      }
    }
    if (send[rank].size() != plan.send_elements[field][rank]) throw Error("test: a send buffer is not full", 1);
    receive[rank].assign(plan.receive_elements[field][rank], 0);
  }
  for (std::size_t t = 0; t < plan.transfers.size(); ++t) {
    const Transfer& transfer = plan.transfers[t];
    const Part& part = plan.part(t, field);
    std::copy_n(send[transfer.from].begin() + static_cast<std::ptrdiff_t>(part.send_offset), part.elements,
                receive[transfer.to].begin() + static_cast<std::ptrdiff_t>(part.receive_offset));
  }
  for (std::uint32_t rank = 0; rank < plan.ranks(); ++rank) {
    into[rank].resize(plan.moves.first_after[rank + 1] - plan.moves.first_after[rank]);
    auto next = receive[rank].begin();
    for (const std::uint32_t t : plan.receives(rank)) {
      const Transfer& transfer = plan.transfers[t];
      for (std::uint32_t i = 0; i < transfer.items; ++i) {
        const auto size = static_cast<std::ptrdiff_t>(count(plan.pack[transfer.first_packed + i]));
        if (size == 0) continue;
        into[rank][plan.unpack[transfer.first_unpacked + i] - plan.moves.first_after[rank]].assign(next, next + size);
        next += size;
      }
    }
    if (next != receive[rank].end()) throw Error("test: a receive buffer is not used up", 1);
  }
}

inline Cluster exchange(const ExchangePlan& plan, std::size_t field, const Cluster& from) {
  Cluster into(plan.ranks());
  exchange(plan, field, from, into);
  return into;
}

/// The same through the stages of the node-first schedule.
inline Cluster exchange(const HierarchicalExchange& stages, std::size_t field, const Cluster& from) {
  const Cluster gathered = exchange(stages.gather, field, from);
  const Cluster arrived = exchange(stages.between, field, gathered);
  Cluster into = exchange(stages.inside, field, from);
  exchange(stages.scatter, field, arrived, into);
  return into;
}

/// Slots of a layout, every item with elements that name it: item · 1,000,000 + position.
inline Cluster named(const Layout& layout, const std::vector<std::uint32_t>& length,
                     std::uint64_t elements_per_length) {
  Cluster cluster(layout.ranks());
  for (std::uint32_t rank = 0; rank < layout.ranks(); ++rank) {
    for (const std::uint32_t item : layout.items(rank)) {
      Elements& elements = cluster[rank].emplace_back();
      for (std::uint64_t i = 0; i < length[item] * elements_per_length; ++i) elements.push_back(item * 1000000ULL + i);
    }
  }
  return cluster;
}

}  // namespace orch::test
