// Times of small exchanges between ranks, and the coefficients of the exchange model that explain them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend.hpp"
#include "orchmllm/exchange/link_traffic.hpp"
#include "orchmllm/placement/topology.hpp"

namespace orch::apps {

/// One message of `bytes` from each sending rank to each of its peers, all at once.
struct LinkRow {
  Link link = Link::intra_node;
  std::uint32_t senders = 0;  ///< ranks of a node that send
  std::uint32_t peers = 0;    ///< of each of them
  std::uint64_t bytes = 0;    ///< a message
  std::uint32_t repetitions = 0;
  double seconds = 0;  ///< median, of the quietest round
  double fitted = 0;   ///< by the coefficients
};

/// Coefficients of one kind of link.
struct LinkFit {
  bool measured = false;
  double bandwidth = 0;             ///< bytes/s of a rank, or of a NIC
  std::uint32_t ports = 0;          ///< NICs of a node, where its ranks share them; 0: each has its own
  double hop_seconds = 0;           ///< half of a small message's way there and back
  std::vector<double> share_bytes;  ///< sizes of messages …
  std::vector<double> share;        ///< … and the part of the bandwidth that they reach
  double residual = 0;              ///< root of the mean square of relative errors, sizes that bandwidth decides
};

struct LinkResults {
  std::vector<LinkRow> rows;
  LinkFit inside;
  LinkFit between;
  double base_seconds = 0;  ///< of an exchange
  double peer_seconds = 0;  ///< for each peer
  double latency_residual = 0;
  double collective_seconds = 0;  ///< of a collective, beyond its hops
};

/// There are several ranks, as many on each node. Takes `seconds`; more where the first repetitions do, of 64 bytes
/// each way of sending.
[[nodiscard]] LinkResults measure_links(Backend& transport, const Topology& topology, double seconds);

}  // namespace orch::apps
