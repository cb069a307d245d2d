// Exchange plan: per-pair counts and offsets of the one all-to-all that carries out a rearrangement.
//
// Every sample brings a number of elements (tokens of pixels, of hidden states, token ids). A rank's send buffer holds
// one run per receiver, in order of receiver; a rank's receive buffer one run per sender, in order of sender. Inside a
// run samples are in the order of the layout after. What stays on its rank is a run like any other, copied locally.
// Only pairs with payload appear, so no message is empty: O(min(n, ranks²)) transfers.
// Units: elements; bytes = elements · element_bytes. Complexity: O(n log n). Guarantee: offsets tile both buffers.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/base/cost.hpp"
#include "orchmllm/exchange/rearrangement.hpp"

namespace orch {

struct Transfer {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t samples = 0;  ///< with payload
  std::uint64_t elements = 0;
  std::uint64_t send_offset = 0;     ///< in the sender's buffer, elements
  std::uint64_t receive_offset = 0;  ///< in the receiver's buffer, elements

  friend bool operator==(const Transfer&, const Transfer&) = default;
};

struct ExchangePlan {
  std::uint32_t ranks = 0;
  std::uint64_t element_bytes = 1;
  std::vector<Transfer> transfers;              ///< by (from, to)
  std::vector<std::uint64_t> send_elements;     ///< rank → size of its send buffer
  std::vector<std::uint64_t> receive_elements;  ///< rank → size of its receive buffer
};

/// `elements[slot]` = payload of the sample in that slot of the layout before.
[[nodiscard]] inline ExchangePlan exchange_plan(const Rearrangement& rearrangement,
                                                std::span<const std::uint64_t> elements, std::uint64_t element_bytes) {
  if (elements.size() != rearrangement.to.size()) {
    throw InvalidInput("payload sizes for " + std::to_string(elements.size()) + " slots, but the rearrangement has " +
                       std::to_string(rearrangement.to.size()));
  }
  const std::uint32_t ranks = rearrangement.ranks();
  ExchangePlan plan{
      ranks, element_bytes, {}, std::vector<std::uint64_t>(ranks, 0), std::vector<std::uint64_t>(ranks, 0)};

  std::vector<std::uint32_t> receiver_of(rearrangement.to.size());  // slot after → rank
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::fill(receiver_of.begin() + rearrangement.first_after[rank],
              receiver_of.begin() + rearrangement.first_after[rank + 1], rank);
  }

  std::vector<std::uint32_t> by_target;
  for (std::uint32_t from = 0; from < ranks; ++from) {
    by_target.clear();
    for (std::uint32_t slot = rearrangement.first_before[from]; slot < rearrangement.first_before[from + 1]; ++slot) {
      by_target.push_back(slot);
    }
    std::sort(by_target.begin(), by_target.end(),
              [&](std::uint32_t a, std::uint32_t b) { return rearrangement.to[a] < rearrangement.to[b]; });
    for (const std::uint32_t slot : by_target) {
      if (elements[slot] == 0) continue;
      const std::uint32_t to = receiver_of[rearrangement.to[slot]];
      if (plan.transfers.empty() || plan.transfers.back().from != from || plan.transfers.back().to != to) {
        plan.transfers.push_back({from, to, 0, 0, plan.send_elements[from], plan.receive_elements[to]});
      }
      Transfer& transfer = plan.transfers.back();
      ++transfer.samples;
      transfer.elements = checked_add(transfer.elements, elements[slot]);
      plan.send_elements[from] = checked_add(plan.send_elements[from], elements[slot]);
      plan.receive_elements[to] = checked_add(plan.receive_elements[to], elements[slot]);
    }
  }
  return plan;
}

/// Throws InvalidInput naming the first rank or rank pair whose counts or offsets do not fit.
inline void verify(const ExchangePlan& plan) {
  std::vector<std::uint64_t> sent(plan.ranks, 0);
  std::vector<std::uint64_t> received(plan.ranks, 0);
  const Transfer* previous = nullptr;
  for (const Transfer& transfer : plan.transfers) {
    const std::string pair = "exchange " + std::to_string(transfer.from) + " -> " + std::to_string(transfer.to) + ": ";
    if (transfer.from >= plan.ranks || transfer.to >= plan.ranks) {
      throw InvalidInput(pair + "there are " + std::to_string(plan.ranks) + " ranks");
    }
    if (previous != nullptr &&
        (previous->from > transfer.from || (previous->from == transfer.from && previous->to >= transfer.to))) {
      throw InvalidInput(pair + "transfers must be in order of (from, to), each pair once");
    }
    if (transfer.send_offset != sent[transfer.from]) {
      throw InvalidInput(pair + "send offset " + std::to_string(transfer.send_offset) + ", expected " +
                         std::to_string(sent[transfer.from]));
    }
    if (transfer.receive_offset != received[transfer.to]) {
      throw InvalidInput(pair + "receive offset " + std::to_string(transfer.receive_offset) + ", expected " +
                         std::to_string(received[transfer.to]));
    }
    sent[transfer.from] = checked_add(sent[transfer.from], transfer.elements);
    received[transfer.to] = checked_add(received[transfer.to], transfer.elements);
    previous = &transfer;
  }
  for (std::uint32_t rank = 0; rank < plan.ranks; ++rank) {
    if (sent[rank] != plan.send_elements[rank] || received[rank] != plan.receive_elements[rank]) {
      throw InvalidInput("exchange buffers of rank " + std::to_string(rank) + " hold " +
                         std::to_string(plan.send_elements[rank]) + " and " +
                         std::to_string(plan.receive_elements[rank]) + " elements, its transfers " +
                         std::to_string(sent[rank]) + " and " + std::to_string(received[rank]));
    }
  }
}

/// The way back (gradients of what `plan` carried): senders and receivers change places.
[[nodiscard]] inline ExchangePlan inverse(const ExchangePlan& plan) {
  ExchangePlan back{plan.ranks, plan.element_bytes, plan.transfers, plan.receive_elements, plan.send_elements};
  for (Transfer& transfer : back.transfers) {
    std::swap(transfer.from, transfer.to);
    std::swap(transfer.send_offset, transfer.receive_offset);
  }
  std::sort(back.transfers.begin(), back.transfers.end(),
            [](const Transfer& a, const Transfer& b) { return a.from != b.from ? a.from < b.from : a.to < b.to; });
  return back;
}

/// Bytes of an exchange by the link that carries them. Ranks are numbered node by node.
struct Traffic {
  std::uint64_t local_bytes = 0;       ///< stay on their rank
  std::uint64_t intra_node_bytes = 0;  ///< to another rank of the same node
  std::uint64_t inter_node_bytes = 0;  ///< to another node

  [[nodiscard]] std::uint64_t moved_bytes() const { return intra_node_bytes + inter_node_bytes; }
};

[[nodiscard]] inline Traffic traffic(const ExchangePlan& plan, std::uint32_t ranks_per_node) {
  Traffic sum;
  for (const Transfer& transfer : plan.transfers) {
    const std::uint64_t bytes = checked_mul(transfer.elements, plan.element_bytes);
    if (transfer.from == transfer.to) {
      sum.local_bytes += bytes;
    } else if (transfer.from / ranks_per_node == transfer.to / ranks_per_node) {
      sum.intra_node_bytes += bytes;
    } else {
      sum.inter_node_bytes += bytes;
    }
  }
  return sum;
}

}  // namespace orch
