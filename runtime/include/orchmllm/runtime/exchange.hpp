// Runs the legs of a route: packs what leaves the rank, hands it to the transport, unpacks what arrives.
//
// What stays on the rank is copied item by item, past the buffers of messages; on a GPU while messages travel. An
// exchange that is the identity on all ranks sends nothing. Receivers are begun with the rank after this one, so that
// senders spread.
// Complexity: O(items + bytes). Throws TransportError; InvalidInput if runs and items of a leg do not fit.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/base/error.hpp"
#include "orchmllm/runtime/legs.hpp"
#include "orchmllm/runtime/memory.hpp"
#include "orchmllm/runtime/transport.hpp"

namespace orch::runtime {

/// Place → field → memory.
using RouteMemory = std::array<FieldMemory, 4>;

/// Buffers of messages.
template <Memory M>
struct MessageBuffers {
  typename M::Buffer send;
  typename M::Buffer receive;
};

/// What an exchange took on this rank.
struct ExchangeCount {
  double pack_seconds = 0;      ///< packing, unpacking, copies that stay
  double exchange_seconds = 0;  ///< messages
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t messages = 0;  ///< sent, one for each peer and field
};

/// Adds the seconds since the last call.
class Stopwatch {
 public:
  void add_to(double& seconds) {
    const auto now = std::chrono::steady_clock::now();
    seconds += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

namespace detail {

/// The items of one run.
struct ItemRange {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Visits the runs of a list with their items; throws InvalidInput if runs and items do not add up.
template <class Visit>
void each_run(const ItemList& list, std::size_t field, std::uint64_t element_bytes, Visit&& visit) {
  std::size_t item = 0;
  for (const PeerRun& run : list.runs) {
    const std::uint64_t bytes = run.elements[field] * element_bytes;
    std::uint64_t sum = 0;
    const std::size_t end = std::min(list.bytes[field].size(), item + run.items);
    for (std::size_t i = item; i < end; ++i) sum += list.bytes[field][i];
    if (sum != bytes || end != item + run.items) {
      throw InvalidInput("a run of rank " + std::to_string(run.rank) + " has " + std::to_string(bytes) +
                         " bytes, but its items " + std::to_string(sum));
    }
    visit(run.rank, ItemRange{item, run.items}, bytes);
    item = end;
  }
}

template <Memory M>
void copy_items(M& memory, const ItemList& from, ItemRange out, const ItemList& into, ItemRange in, std::size_t field,
                const RouteMemory& places) {
  if (out.count != in.count) throw InvalidInput("what stays on a rank differs between its two lists");
  const std::byte* source = places[static_cast<std::size_t>(from.place)][field].data();
  std::byte* target = places[static_cast<std::size_t>(into.place)][field].data();
  for (std::size_t i = 0; i < out.count; ++i) {
    const std::uint64_t bytes = from.bytes[field][out.first + i];
    if (bytes == 0) continue;
    memory.copy(source + from.at[field][out.first + i], target + into.at[field][in.first + i], bytes);
  }
}

/// Bytes of all runs but the rank's own.
[[nodiscard]] inline std::uint64_t message_bytes(const std::vector<Leg>& wave, ItemList Leg::*side, std::uint32_t rank,
                                                 std::span<const std::uint64_t> element_bytes) {
  std::uint64_t bytes = 0;
  for (const Leg& leg : wave) {
    if (leg.identity) continue;
    for (const PeerRun& run : (leg.*side).runs) {
      for (std::size_t f = 0; f < element_bytes.size() && run.rank != rank; ++f) {
        bytes += run.elements[f] * element_bytes[f];
      }
    }
  }
  return bytes;
}

/// One wave of a route, on one rank.
template <Memory M>
class Wave {
 public:
  Wave(M& memory, const RouteLegs& route, const std::vector<Leg>& legs, const RouteMemory& places,
       MessageBuffers<M>& buffers, std::uint32_t rank)
      : memory_(memory), route_(route), legs_(legs), places_(places), rank_(rank) {
    send_ = memory.of_messages(buffers.send, message_bytes(legs, &Leg::out, rank, route.element_bytes));
    receive_ = memory.of_messages(buffers.receive, message_bytes(legs, &Leg::in, rank, route.element_bytes));
  }

  void pack() {
    for (std::size_t l = 0; l < legs_.size(); ++l) {
      for (std::size_t f = 0; f < route_.element_bytes.size(); ++f) pack(l, f);
    }
    std::stable_partition(sends_.begin(), sends_.end(), [&](const SendRun& run) { return run.peer > rank_; });
  }

  void copy_staying() {
    for (const Staying& staying : staying_) {
      const Leg& leg = legs_[staying.leg];
      copy_items(memory_, leg.out, staying.out, leg.in, staying.in, staying.field, places_);
    }
  }

  void unpack() {
    std::size_t offset = 0;
    for (const Leg& leg : legs_) {
      if (leg.identity) continue;
      for (std::size_t f = 0; f < route_.element_bytes.size(); ++f) {
        std::byte* target = places_[static_cast<std::size_t>(leg.in.place)][f].data();
        each_run(leg.in, f, route_.element_bytes[f], [&](std::uint32_t peer, ItemRange items, std::uint64_t) {
          if (peer == rank_) return;
          for (std::size_t i = items.first; i < items.first + items.count; ++i) {
            const std::uint64_t bytes = leg.in.bytes[f][i];
            if (bytes == 0) continue;
            memory_.copy(receive_.data() + offset, target + leg.in.at[f][i], bytes);
            offset += bytes;
          }
        });
      }
    }
  }

  [[nodiscard]] std::span<const SendRun> sends() const { return sends_; }
  [[nodiscard]] std::span<const ReceiveRun> receives() const { return receives_; }

  void add_to(ExchangeCount& count) const {
    count.sent_bytes += send_.size();
    count.received_bytes += receive_.size();
    count.messages += sends_.size();
  }

 private:
  /// Items of one leg and field that do not leave the rank.
  struct Staying {
    std::size_t leg = 0;
    std::size_t field = 0;
    ItemRange out, in;
  };

  void pack(std::size_t l, std::size_t f) {
    const Leg& leg = legs_[l];
    if (leg.identity) {
      staying_.push_back({l, f, {0, leg.out.at[f].size()}, {0, leg.in.at[f].size()}});
      return;
    }
    const auto number = static_cast<std::uint32_t>(l * route_.element_bytes.size() + f);
    const std::byte* source = places_[static_cast<std::size_t>(leg.out.place)][f].data();
    Staying staying{l, f, {}, {}};
    each_run(leg.out, f, route_.element_bytes[f], [&](std::uint32_t peer, ItemRange items, std::uint64_t run_bytes) {
      if (peer == rank_) {
        staying.out = items;
        return;
      }
      const std::size_t begin = packed_;
      for (std::size_t i = items.first; i < items.first + items.count; ++i) {
        const std::uint64_t bytes = leg.out.bytes[f][i];
        if (bytes == 0) continue;
        memory_.copy(source + leg.out.at[f][i], send_.data() + packed_, bytes);
        packed_ += bytes;
      }
      if (run_bytes > 0) sends_.push_back({peer, number, send_.subspan(begin, run_bytes)});
    });
    each_run(leg.in, f, route_.element_bytes[f], [&](std::uint32_t peer, ItemRange items, std::uint64_t run_bytes) {
      if (peer == rank_) {
        staying.in = items;
        return;
      }
      if (run_bytes > 0) receives_.push_back({peer, number, receive_.subspan(awaited_, run_bytes)});
      awaited_ += run_bytes;
    });
    staying_.push_back(staying);
  }

  M& memory_;
  const RouteLegs& route_;
  const std::vector<Leg>& legs_;
  const RouteMemory& places_;
  std::uint32_t rank_;
  std::span<std::byte> send_;
  std::span<std::byte> receive_;
  std::size_t packed_ = 0;
  std::size_t awaited_ = 0;
  std::vector<SendRun> sends_;
  std::vector<ReceiveRun> receives_;
  std::vector<Staying> staying_;
};

}  // namespace detail

template <Transport T, Memory M>
void run_route(T& transport, M& memory, const std::string& what, const RouteLegs& route, const RouteMemory& places,
               MessageBuffers<M>& buffers, ExchangeCount& count) {
  Stopwatch watch;
  for (const std::vector<Leg>& legs : route.waves) {
    detail::Wave wave(memory, route, legs, places, buffers, transport.rank());
    wave.pack();
    memory.mark();
    wave.copy_staying();
    memory.reach_mark();
    watch.add_to(count.pack_seconds);
    if (!wave.sends().empty() || !wave.receives().empty()) transport.all_to_all(what, wave.sends(), wave.receives());
    watch.add_to(count.exchange_seconds);
    wave.unpack();
    memory.settle();
    wave.add_to(count);
    watch.add_to(count.pack_seconds);
  }
}

}  // namespace orch::runtime
