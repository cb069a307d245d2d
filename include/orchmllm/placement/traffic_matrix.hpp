// Traffic matrix: who needs how many bytes from where, sparse.
//
// Rows are what may be placed (balanced batches), columns are places that hold the bytes now (home ranks, or nodes).
// Units: bytes. Complexity: O(entries · log) to build. Throws Overflow.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "orchmllm/base/cost.hpp"
#include "orchmllm/placement/topology.hpp"

namespace orch {

struct TrafficEntry {
  std::uint32_t place = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const TrafficEntry&, const TrafficEntry&) = default;
};

/// Compressed rows; places of a row ascend, each once, zero bytes left out.
struct TrafficMatrix {
  std::uint32_t places = 0;
  std::vector<std::size_t> first{0};  ///< row → its first entry; one more than rows
  std::vector<TrafficEntry> entries;

  [[nodiscard]] std::uint32_t rows() const { return static_cast<std::uint32_t>(first.size() - 1); }
  [[nodiscard]] std::span<const TrafficEntry> row(std::uint32_t r) const {
    return std::span(entries).subspan(first[r], first[r + 1] - first[r]);
  }
  [[nodiscard]] std::uint64_t row_bytes(std::uint32_t r) const {
    std::uint64_t sum = 0;
    for (const TrafficEntry& entry : row(r)) sum = checked_add(sum, entry.bytes);
    return sum;
  }
  [[nodiscard]] std::uint64_t bytes(std::uint32_t r, std::uint32_t place) const {
    const auto entries_of_row = row(r);
    const auto found = std::lower_bound(entries_of_row.begin(), entries_of_row.end(), place,
                                        [](const TrafficEntry& entry, std::uint32_t p) { return entry.place < p; });
    return found != entries_of_row.end() && found->place == place ? found->bytes : 0;
  }
};

/// Rows = ranks after the rearrangement (`to_rank`), places = ranks before it; `sample_bytes[i]` moves with sample i.
[[nodiscard]] inline TrafficMatrix traffic_matrix(std::span<const std::uint32_t> from_rank,
                                                  std::span<const std::uint32_t> to_rank,
                                                  std::span<const std::uint64_t> sample_bytes, std::uint32_t ranks) {
  if (from_rank.size() != to_rank.size() || from_rank.size() != sample_bytes.size()) {
    throw InvalidInput("ranks before, ranks after and bytes must be given for the same samples");
  }
  std::vector<std::size_t> next(std::size_t{ranks} + 1, 0);
  for (std::size_t i = 0; i < to_rank.size(); ++i) {
    if (to_rank[i] >= ranks || from_rank[i] >= ranks) {
      throw InvalidInput("sample " + std::to_string(i) + " is on a rank above " + std::to_string(ranks - 1));
    }
    ++next[to_rank[i] + 1];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  const std::vector<std::size_t> begin = next;
  std::vector<TrafficEntry> raw(to_rank.size());
  for (std::size_t i = 0; i < to_rank.size(); ++i) raw[next[to_rank[i]]++] = {from_rank[i], sample_bytes[i]};

  TrafficMatrix matrix;
  matrix.places = ranks;
  for (std::uint32_t row = 0; row < ranks; ++row) {
    const auto first = raw.begin() + static_cast<std::ptrdiff_t>(begin[row]);
    const auto last = raw.begin() + static_cast<std::ptrdiff_t>(begin[row + 1]);
    std::sort(first, last, [](const TrafficEntry& a, const TrafficEntry& b) { return a.place < b.place; });
    for (auto entry = first; entry != last; ++entry) {
      if (entry->bytes == 0) continue;
      if (matrix.entries.size() > matrix.first.back() && matrix.entries.back().place == entry->place) {
        matrix.entries.back().bytes = checked_add(matrix.entries.back().bytes, entry->bytes);
      } else {
        matrix.entries.push_back(*entry);
      }
    }
    matrix.first.push_back(matrix.entries.size());
  }
  return matrix;
}

/// The same rows with the nodes of a topology as places.
[[nodiscard]] inline TrafficMatrix by_node(const TrafficMatrix& by_rank, const Topology& topology) {
  TrafficMatrix matrix;
  matrix.places = topology.nodes();
  for (std::uint32_t row = 0; row < by_rank.rows(); ++row) {
    for (const TrafficEntry& entry : by_rank.row(row)) {
      const std::uint32_t node = topology.node_of[entry.place];  // ascends with the rank
      if (matrix.entries.size() > matrix.first.back() && matrix.entries.back().place == node) {
        matrix.entries.back().bytes = checked_add(matrix.entries.back().bytes, entry.bytes);
      } else {
        matrix.entries.push_back({node, entry.bytes});
      }
    }
    matrix.first.push_back(matrix.entries.size());
  }
  return matrix;
}

}  // namespace orch
