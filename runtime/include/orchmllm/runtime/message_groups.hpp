// Cuts an exchange into groups of messages, the same on both ends of every pair of ranks.
//
// Group 0 has the pairs of at most group_bytes / (2 · (ranks − 1)) bytes; big pairs follow, slice by slice, in groups
// of as many distances as fit. A message is a part of one run; a slice may be several. Messages of a pair have the same
// sizes and order on both ends, and their group the same number. Groups of a rank are in order of their numbers; those
// it has no part in are left out. Sends and receives of a group: at most group_bytes (4,096 or more) on every rank.
// Complexity: O(runs · log runs + messages). Units: bytes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "orchmllm/runtime/transport.hpp"

namespace orch::runtime {

struct MessageGroup {
  std::uint64_t number = 0;
  std::vector<SendRun> sends;        ///< parts of runs; `number` is that of the run
  std::vector<ReceiveRun> receives;  ///< …
};

namespace detail {

struct GroupRule {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint64_t small = 0;      ///< most of a pair of group 0
  std::uint64_t slice = 0;      ///< of a big pair
  std::uint64_t distances = 1;  ///< of big pairs in a group

  /// Group of slice `index` of a big pair.
  [[nodiscard]] std::uint64_t group(std::uint64_t distance, std::uint64_t index) const {
    const std::uint64_t blocks = (ranks - 1 + distances - 1) / distances;
    return 1 + index * blocks + (distance - 1) / distances;
  }
};

/// Parts of a rank's runs of one direction: add(group, run, offset, bytes).
template <class Run, class Add>
void cut(const GroupRule& rule, std::span<const Run> runs, bool incoming, Add&& add) {
  std::map<std::uint32_t, std::vector<const Run*>> of_peer;
  for (const Run& run : runs) {
    if (run.peer != rule.rank && !run.bytes.empty()) of_peer[run.peer].push_back(&run);
  }
  for (auto& [peer, list] : of_peer) {
    std::stable_sort(list.begin(), list.end(), [](const Run* a, const Run* b) { return a->number < b->number; });
    std::uint64_t bytes = 0;
    for (const Run* run : list) bytes += run->bytes.size();
    const bool big = bytes > rule.small;
    const std::uint64_t distance =
        incoming ? (rule.rank + rule.ranks - peer) % rule.ranks : (peer + rule.ranks - rule.rank) % rule.ranks;
    std::uint64_t before = 0;  // of the pair's bytes
    for (const Run* run : list) {
      for (std::size_t at = 0; at < run->bytes.size();) {
        const std::uint64_t index = big ? before / rule.slice : 0;
        const std::uint64_t room = big ? (index + 1) * rule.slice - before : rule.small;
        const std::size_t part = static_cast<std::size_t>(std::min<std::uint64_t>(run->bytes.size() - at, room));
        add(big ? rule.group(distance, index) : 0, *run, at, part);
        at += part;
        before += part;
      }
    }
  }
}

}  // namespace detail

/// The groups of one rank. Runs to the rank itself are left out.
[[nodiscard]] inline std::vector<MessageGroup> message_groups(std::uint32_t rank, std::uint32_t ranks,
                                                              std::span<const SendRun> sends,
                                                              std::span<const ReceiveRun> receives,
                                                              std::uint64_t group_bytes, std::uint64_t slice_bytes) {
  if (ranks <= 1) return {};
  group_bytes = std::max<std::uint64_t>(group_bytes, 4096);
  detail::GroupRule rule{rank, ranks, group_bytes / (2 * (std::uint64_t{ranks} - 1)), 0, 1};
  rule.slice = std::clamp<std::uint64_t>(slice_bytes, 1, group_bytes / 2);
  rule.distances = std::clamp<std::uint64_t>(group_bytes / (2 * rule.slice), 1, std::uint64_t{ranks} - 1);
  std::map<std::uint64_t, MessageGroup> groups;
  detail::cut(rule, sends, false, [&](std::uint64_t group, const SendRun& run, std::size_t at, std::size_t bytes) {
    groups[group].sends.push_back({run.peer, run.number, run.bytes.subspan(at, bytes)});
  });
  detail::cut(rule, receives, true, [&](std::uint64_t group, const ReceiveRun& run, std::size_t at, std::size_t bytes) {
    groups[group].receives.push_back({run.peer, run.number, run.bytes.subspan(at, bytes)});
  });
  std::vector<MessageGroup> list;
  for (auto& [number, group] : groups) {
    group.number = number;
    list.push_back(std::move(group));
  }
  return list;
}

}  // namespace orch::runtime
