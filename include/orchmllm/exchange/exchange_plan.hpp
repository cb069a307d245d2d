// Exchange plan: the one all-to-all that carries out a rearrangement, for several fields at once.
//
// An item brings, for every field (pixels, token ids, hidden states, …), length · elements_per_length elements. For
// each field a rank has a send buffer with one run per receiver, in order of receiver, and a receive buffer with one
// run per sender, in order of sender. `pack` and `unpack` say which slots the runs hold, in order. What stays on its
// rank is a run like any other, copied locally. Only pairs with payload appear, so no message is empty:
// O(min(n, ranks²)) transfers. Units: elements; bytes = elements · element_bytes. Complexity: O(n + ranks) to build.
// Guarantee: offsets tile all buffers.
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

#include "orchmllm/base/cost.hpp"
#include "orchmllm/exchange/rearrangement.hpp"

namespace orch {

struct Field {
  std::string name;
  std::uint64_t element_bytes = 1;
  std::uint64_t elements_per_length = 1;

  [[nodiscard]] std::uint64_t bytes_per_length() const { return checked_mul(element_bytes, elements_per_length); }
  friend bool operator==(const Field&, const Field&) = default;
};

/// A field and how much of it every item brings.
struct Payload {
  Field field;
  std::vector<std::uint32_t> length;  ///< slot before → length (tokens, patches, frames)

  friend bool operator==(const Payload&, const Payload&) = default;
};

struct Transfer {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t items = 0;
  std::uint32_t first_packed = 0;    ///< its items are pack[first_packed …]
  std::uint32_t first_unpacked = 0;  ///< and unpack[first_unpacked …], in the same order

  friend bool operator==(const Transfer&, const Transfer&) = default;
};

/// What a transfer carries of one field, elements.
struct Part {
  std::uint64_t elements = 0;
  std::uint64_t send_offset = 0;     ///< in the sender's buffer of the field
  std::uint64_t receive_offset = 0;  ///< in the receiver's buffer of the field

  friend bool operator==(const Part&, const Part&) = default;
};

struct ExchangePlan {
  Rearrangement moves;
  std::vector<Payload> payload;               ///< field by field
  std::vector<std::uint32_t> pack;            ///< slots before, rank by rank, in the order of its send buffers
  std::vector<std::uint32_t> unpack;          ///< slots after, rank by rank, in the order of its receive buffers
  std::vector<Transfer> transfers;            ///< by (from, to)
  std::vector<Part> parts;                    ///< [transfer · fields + field]
  std::vector<std::uint32_t> first_send;      ///< rank → its first transfer; one more entry than ranks
  std::vector<std::uint32_t> received;        ///< indices of transfers, by (to, from)
  std::vector<std::uint32_t> first_received;  ///< rank → its first entry of `received`
  std::vector<std::vector<std::uint64_t>> send_elements;     ///< field → rank → size of its send buffer
  std::vector<std::vector<std::uint64_t>> receive_elements;  ///< field → rank → size of its receive buffer
  bool identity = true;  ///< every element stays where it is: there is nothing to send or to copy

  [[nodiscard]] std::uint32_t ranks() const { return moves.ranks(); }
  [[nodiscard]] std::size_t fields() const { return payload.size(); }
  [[nodiscard]] std::span<const Transfer> sends(std::uint32_t rank) const {
    return std::span(transfers).subspan(first_send[rank], first_send[rank + 1] - first_send[rank]);
  }
  /// Indices of the transfers that `rank` receives.
  [[nodiscard]] std::span<const std::uint32_t> receives(std::uint32_t rank) const {
    return std::span(received).subspan(first_received[rank], first_received[rank + 1] - first_received[rank]);
  }
  [[nodiscard]] const Part& part(std::size_t transfer, std::size_t field) const {
    return parts[transfer * fields() + field];
  }
  /// All fields of a transfer. Throws Overflow.
  [[nodiscard]] std::uint64_t bytes(std::size_t transfer) const {
    std::uint64_t sum = 0;
    for (std::size_t f = 0; f < fields(); ++f) {
      sum = checked_add(sum, checked_mul(part(transfer, f).elements, payload[f].field.element_bytes));
    }
    return sum;
  }
  friend bool operator==(const ExchangePlan&, const ExchangePlan&) = default;
};

/// Lengths by slot, from lengths by item.
[[nodiscard]] inline std::vector<std::uint32_t> by_slot(const Layout& layout, std::span<const std::uint32_t> of_item) {
  std::vector<std::uint32_t> result(layout.size());
  for (std::size_t slot = 0; slot < result.size(); ++slot) result[slot] = of_item[layout.item_at[slot]];
  return result;
}

namespace detail {

/// slot → rank, from the first slots of the ranks.
[[nodiscard]] inline std::vector<std::uint32_t> rank_at(std::span<const std::uint32_t> first) {
  std::vector<std::uint32_t> rank_of(first.back());
  for (std::uint32_t rank = 0; rank + 1 < first.size(); ++rank) {
    std::fill(rank_of.begin() + first[rank], rank_of.begin() + first[rank + 1], rank);
  }
  return rank_of;
}

/// Indices of transfers by (to, from), and where each receiver's begin.
inline void index_receives(ExchangePlan& plan) {
  plan.first_received.assign(std::size_t{plan.ranks()} + 1, 0);
  for (const Transfer& transfer : plan.transfers) ++plan.first_received[transfer.to + 1];
  std::partial_sum(plan.first_received.begin(), plan.first_received.end(), plan.first_received.begin());
  std::vector<std::uint32_t> next(plan.first_received.begin(), plan.first_received.end() - 1);
  plan.received.resize(plan.transfers.size());
  for (std::uint32_t t = 0; t < plan.transfers.size(); ++t) plan.received[next[plan.transfers[t].to]++] = t;
}

}  // namespace detail

/// Throws InvalidInput if a payload is not of the rearrangement's size, Overflow.
[[nodiscard]] inline ExchangePlan exchange_plan(Rearrangement moves, std::vector<Payload> payload) {
  const std::size_t n = moves.to.size();
  for (const Payload& p : payload) {
    if (p.length.size() == n) continue;
    throw InvalidInput("lengths of field \"" + p.field.name + "\" for " + std::to_string(p.length.size()) +
                       " slots, but the rearrangement has " + std::to_string(n));
  }
  ExchangePlan plan;
  plan.moves = std::move(moves);
  plan.payload = std::move(payload);
  const std::uint32_t ranks = plan.ranks();
  const std::size_t fields = plan.fields();
  const std::vector<std::uint32_t> sender = detail::rank_at(plan.moves.first_before);
  const std::vector<std::uint32_t> receiver = detail::rank_at(plan.moves.first_after);
  plan.send_elements.assign(fields, std::vector<std::uint64_t>(ranks, 0));
  plan.receive_elements = plan.send_elements;

  // Every sender's slots in the order of their slots after: receiver by receiver.
  plan.pack.resize(n);
  std::vector<std::uint32_t> next(plan.moves.first_before.begin(), plan.moves.first_before.end() - 1);
  for (const std::uint32_t before : inverse(plan.moves).to) plan.pack[next[sender[before]]++] = before;

  plan.unpack.resize(n);
  next.assign(plan.moves.first_after.begin(), plan.moves.first_after.end() - 1);
  std::vector<std::uint64_t> sum(fields);
  for (std::uint32_t from = 0; from < ranks; ++from) {
    plan.first_send.push_back(static_cast<std::uint32_t>(plan.transfers.size()));
    const std::uint32_t end = plan.moves.first_before[from + 1];
    for (std::uint32_t begin = plan.moves.first_before[from], i = begin; begin < end; begin = i) {
      const std::uint32_t to = receiver[plan.moves.to[plan.pack[begin]]];
      const std::uint32_t first_unpacked = next[to];
      std::fill(sum.begin(), sum.end(), 0);
      for (; i < end && receiver[plan.moves.to[plan.pack[i]]] == to; ++i) {
        plan.unpack[next[to]++] = plan.moves.to[plan.pack[i]];
        for (std::size_t f = 0; f < fields; ++f) sum[f] += plan.payload[f].length[plan.pack[i]];
      }
      if (std::all_of(sum.begin(), sum.end(), [](std::uint64_t s) { return s == 0; })) continue;
      plan.transfers.push_back({from, to, i - begin, begin, first_unpacked});
      const auto run = plan.pack.begin() + begin;
      plan.identity = plan.identity && from == to && std::is_sorted(run, run + (i - begin));
      for (std::size_t f = 0; f < fields; ++f) {
        const std::uint64_t elements = checked_mul(sum[f], plan.payload[f].field.elements_per_length);
        plan.parts.push_back({elements, plan.send_elements[f][from], plan.receive_elements[f][to]});
        plan.send_elements[f][from] = checked_add(plan.send_elements[f][from], elements);
        plan.receive_elements[f][to] = checked_add(plan.receive_elements[f][to], elements);
      }
    }
  }
  plan.first_send.push_back(static_cast<std::uint32_t>(plan.transfers.size()));
  detail::index_receives(plan);
  return plan;
}

/// The way back (gradients of what `plan` carried): senders and receivers change places, runs stay the same, so that
/// what was received lies in place to be sent.
[[nodiscard]] inline ExchangePlan inverse(const ExchangePlan& plan) {
  ExchangePlan back;
  back.moves = inverse(plan.moves);
  back.payload = plan.payload;
  for (std::size_t f = 0; f < plan.fields(); ++f) {
    for (std::size_t slot = 0; slot < plan.moves.to.size(); ++slot) {
      back.payload[f].length[plan.moves.to[slot]] = plan.payload[f].length[slot];
    }
  }
  back.pack = plan.unpack;
  back.unpack = plan.pack;
  for (const std::uint32_t t : plan.received) {
    const Transfer& there = plan.transfers[t];
    back.transfers.push_back({there.to, there.from, there.items, there.first_unpacked, there.first_packed});
    for (std::size_t f = 0; f < plan.fields(); ++f) {
      const Part& part = plan.part(t, f);
      back.parts.push_back({part.elements, part.receive_offset, part.send_offset});
    }
  }
  back.first_send = plan.first_received;
  back.send_elements = plan.receive_elements;
  back.receive_elements = plan.send_elements;
  back.identity = plan.identity;
  detail::index_receives(back);
  return back;
}

/// Throws InvalidInput naming the first rank pair whose items, elements or offsets do not fit.
inline void verify(const ExchangePlan& plan) {
  std::vector<std::vector<std::uint64_t>> sent(plan.fields(), std::vector<std::uint64_t>(plan.ranks(), 0));
  std::vector<std::vector<std::uint64_t>> received = sent;
  const auto refuse = [](const Transfer& transfer, const std::string& what) {
    throw InvalidInput("exchange " + std::to_string(transfer.from) + " -> " + std::to_string(transfer.to) + ": " +
                       what);
  };
  const auto require = [&](const Transfer& transfer, const std::string& what, std::uint64_t is, std::uint64_t wanted) {
    if (is != wanted) refuse(transfer, what + " " + std::to_string(is) + ", expected " + std::to_string(wanted));
  };
  const std::size_t n = plan.moves.to.size();
  bool sizes_fit = plan.pack.size() == n && plan.unpack.size() == n &&
                   plan.parts.size() == plan.transfers.size() * plan.fields() &&
                   plan.received.size() == plan.transfers.size() && plan.send_elements.size() == plan.fields() &&
                   plan.receive_elements.size() == plan.fields();
  for (std::size_t f = 0; sizes_fit && f < plan.fields(); ++f) {
    sizes_fit = plan.payload[f].length.size() == n && plan.send_elements[f].size() == plan.ranks() &&
                plan.receive_elements[f].size() == plan.ranks();
  }
  if (!sizes_fit) throw InvalidInput("the lists of an exchange are not of the sizes that its slots and ranks ask for");
  std::vector<char> carried(n, 0);
  for (std::size_t t = 0; t < plan.transfers.size(); ++t) {
    const Transfer& transfer = plan.transfers[t];
    if (transfer.from >= plan.ranks() || transfer.to >= plan.ranks()) {
      refuse(transfer, "there are " + std::to_string(plan.ranks()) + " ranks");
    }
    if (t > 0 &&
        std::pair(plan.transfers[t - 1].from, plan.transfers[t - 1].to) >= std::pair(transfer.from, transfer.to)) {
      refuse(transfer, "transfers must be in order of (from, to), each pair once");
    }
    if (std::uint64_t{transfer.first_packed} + transfer.items > plan.pack.size() ||
        std::uint64_t{transfer.first_unpacked} + transfer.items > plan.unpack.size()) {
      refuse(transfer, "its items lie outside of the slots");
    }
    std::vector<std::uint64_t> sum(plan.fields(), 0);
    for (std::uint32_t i = 0; i < transfer.items; ++i) {
      const std::uint32_t before = plan.pack[transfer.first_packed + i];
      if (before >= n) refuse(transfer, "there is no slot " + std::to_string(before));
      if (before < plan.moves.first_before[transfer.from] || before >= plan.moves.first_before[transfer.from + 1]) {
        refuse(transfer, "slot " + std::to_string(before) + " is not on the sender");
      }
      if (carried[before]++ != 0) refuse(transfer, "slot " + std::to_string(before) + " is carried twice");
      require(transfer, "slot after of item " + std::to_string(i), plan.unpack[transfer.first_unpacked + i],
              plan.moves.to[before]);
      for (std::size_t f = 0; f < plan.fields(); ++f) sum[f] += plan.payload[f].length[before];
    }
    for (std::size_t f = 0; f < plan.fields(); ++f) {
      const Part& part = plan.part(t, f);
      const std::string of = " of field \"" + plan.payload[f].field.name + "\"";
      require(transfer, "elements" + of, part.elements, checked_mul(sum[f], plan.payload[f].field.elements_per_length));
      require(transfer, "send offset" + of, part.send_offset, sent[f][transfer.from]);
      sent[f][transfer.from] = checked_add(sent[f][transfer.from], part.elements);
    }
  }
  for (std::uint32_t slot = 0; slot < n; ++slot) {
    const bool has =
        std::any_of(plan.payload.begin(), plan.payload.end(), [&](const Payload& p) { return p.length[slot] > 0; });
    if (has && carried[slot] == 0) throw InvalidInput("an exchange leaves slot " + std::to_string(slot) + " behind");
  }
  for (const std::uint32_t t : plan.received) {
    if (t >= plan.transfers.size()) throw InvalidInput("an exchange receives a transfer that nobody sends");
    for (std::size_t f = 0; f < plan.fields(); ++f) {
      const Part& part = plan.part(t, f);
      const std::uint32_t to = plan.transfers[t].to;
      require(plan.transfers[t], "receive offset of field \"" + plan.payload[f].field.name + "\"", part.receive_offset,
              received[f][to]);
      received[f][to] = checked_add(received[f][to], part.elements);
    }
  }
  for (std::size_t f = 0; f < plan.fields(); ++f) {
    for (std::uint32_t rank = 0; rank < plan.ranks(); ++rank) {
      if (sent[f][rank] == plan.send_elements[f][rank] && received[f][rank] == plan.receive_elements[f][rank]) continue;
      throw InvalidInput("exchange buffers of rank " + std::to_string(rank) + " for field \"" +
                         plan.payload[f].field.name + "\" hold " + std::to_string(plan.send_elements[f][rank]) +
                         " and " + std::to_string(plan.receive_elements[f][rank]) + " elements, its transfers " +
                         std::to_string(sent[f][rank]) + " and " + std::to_string(received[f][rank]));
    }
  }
}

/// Indices of a rank's transfers in an order of sending that spreads over receivers: to the rank after it first,
/// around, to itself last.
[[nodiscard]] inline std::vector<std::uint32_t> send_order(const ExchangePlan& plan, std::uint32_t rank) {
  std::vector<std::uint32_t> order(plan.sends(rank).size());
  std::iota(order.begin(), order.end(), plan.first_send[rank]);
  const auto after =
      std::find_if(order.begin(), order.end(), [&](std::uint32_t t) { return plan.transfers[t].to > rank; });
  std::rotate(order.begin(), after, order.end());
  return order;
}

}  // namespace orch
