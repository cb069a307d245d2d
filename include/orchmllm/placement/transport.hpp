// Exact transportation: rows to places of given capacity, so that the bytes that are already in place are most.
//
// Successive shortest paths with potentials (the Hungarian method with capacities): rows are inserted one by one, each
// by a Dijkstra search over places. A row's entry-less places all cost the same, so they are relaxed together and a
// search costs O(places) per place visited plus the entries of the rows there, not rows · places.
// Complexity: O(rows · visited · (places + capacity · entries a row)), visited ≤ places and small in practice.
// Guarantee: optimal. The potentials give an upper bound on the bytes in place, which the optimum meets. A limit on the
// work (places and entries looked at, not seconds) leaves the last rows to a greedy choice; the bound still holds.
// Ties by row and place number: deterministic. Written for this problem because Boost.Graph's successive shortest
// paths, which find the same totals, take 10 to 300 times as long (bench/bench_placement.cpp).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/base/error.hpp"
#include "orchmllm/placement/traffic_matrix.hpp"

namespace orch::placement {

constexpr std::uint64_t unlimited = ~std::uint64_t{0};

struct Transported {
  std::vector<std::uint32_t> place_of;  ///< row → place
  std::uint64_t in_place = 0;           ///< bytes
  std::uint64_t bound = 0;              ///< no way has more bytes in place
};

namespace detail {

/// Costs are negative bytes, so that shortest is most; potentials u (rows) and v (places) keep u + v ≤ cost, with
/// equality on assigned pairs.
class Transport {
 public:
  Transport(const TrafficMatrix& matrix, std::span<const std::uint32_t> capacity)
      : matrix_(matrix),
        capacity_(capacity),
        place_of_(matrix.rows(), none),
        members_(capacity.size()),
        row_potential_(matrix.rows(), 0),
        place_potential_(capacity.size(), 0),
        distance_(capacity.size()),
        through_(capacity.size()),
        done_(capacity.size()) {}

  Transported solve(std::uint64_t most_work) {
    for (std::uint32_t row = 0; row < matrix_.rows(); ++row) {
      if (work_ < most_work) {
        insert(row);
      } else {
        insert_greedily(row);
      }
    }
    Transported result{std::move(place_of_), 0, bound()};
    for (std::uint32_t row = 0; row < matrix_.rows(); ++row) {
      result.in_place += matrix_.bytes(row, result.place_of[row]);
    }
    return result;
  }

 private:
  using Value = std::int64_t;
  __extension__ using Wide = __int128;
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  static constexpr Value infinite = std::numeric_limits<Value>::max() / 4;

  void insert(std::uint32_t row) {
    const std::size_t places = capacity_.size();
    std::fill(distance_.begin(), distance_.end(), infinite);
    std::fill(done_.begin(), done_.end(), false);
    common_ = infinite;
    visited_.clear();
    row_potential_[row] = 0;
    relax(row, 0);
    while (true) {
      work_ += places;
      // The closest place: by an entry, or by the common cost of all entry-less places.
      std::uint32_t place = none;
      Value best = infinite;
      for (std::uint32_t candidate = 0; candidate < places; ++candidate) {
        if (done_[candidate]) continue;
        const Value distance = std::min(distance_[candidate], common_ - place_potential_[candidate]);
        if (distance < best) {
          best = distance;
          place = candidate;
        }
      }
      if (common_ - place_potential_[place] < distance_[place]) through_[place] = common_row_;
      distance_[place] = best;
      done_[place] = true;
      visited_.push_back(place);
      if (members_[place].size() < capacity_[place]) {
        finish(row, place, best);
        return;
      }
      for (const std::uint32_t member : members_[place]) relax(member, best);
    }
  }

  /// Distances of all places through `row`, which is reached at `reached`.
  void relax(std::uint32_t row, Value reached) {
    work_ += matrix_.row(row).size();
    const Value base = reached - row_potential_[row];
    if (base < common_) {
      common_ = base;
      common_row_ = row;
    }
    for (const TrafficEntry& entry : matrix_.row(row)) {
      if (done_[entry.place]) continue;
      const Value distance = base - static_cast<Value>(entry.bytes) - place_potential_[entry.place];
      if (distance < distance_[entry.place]) {
        distance_[entry.place] = distance;
        through_[entry.place] = row;
      }
    }
  }

  /// Moves every row on the path one place on, and restores the potentials.
  void finish(std::uint32_t row, std::uint32_t last, Value length) {
    for (const std::uint32_t place : visited_) {
      const Value shift = length - distance_[place];
      if (shift == 0) continue;
      for (const std::uint32_t member : members_[place]) row_potential_[member] += shift;
      place_potential_[place] -= shift;
    }
    row_potential_[row] += length;
    for (std::uint32_t place = last; place != none;) {
      const std::uint32_t mover = through_[place];
      const std::uint32_t before = place_of_[mover];
      if (before != none) std::erase(members_[before], mover);
      members_[place].push_back(mover);
      place_of_[mover] = place;
      place = before;
    }
  }

  /// The place with room that holds most of the row, without moving others.
  void insert_greedily(std::uint32_t row) {
    const auto has_room = [&](std::uint32_t place) { return members_[place].size() < capacity_[place]; };
    while (!has_room(first_with_room_)) ++first_with_room_;
    TrafficEntry best{first_with_room_, 0};
    row_potential_[row] = -*std::max_element(place_potential_.begin(), place_potential_.end());
    for (const TrafficEntry& entry : matrix_.row(row)) {
      row_potential_[row] =
          std::min(row_potential_[row], -static_cast<Value>(entry.bytes) - place_potential_[entry.place]);
      if (has_room(entry.place) && entry.bytes > best.bytes) best = entry;
    }
    members_[best.place].push_back(row);
    place_of_[row] = best.place;
  }

  /// Weak duality: no assignment costs less than the potentials of all rows and of all capacity.
  [[nodiscard]] std::uint64_t bound() const {
    Wide least = 0;
    for (const Value potential : row_potential_) least += potential;
    for (std::size_t place = 0; place < capacity_.size(); ++place)
      least += Wide{capacity_[place]} * place_potential_[place];
    return static_cast<std::uint64_t>(-least);
  }

  const TrafficMatrix& matrix_;
  std::span<const std::uint32_t> capacity_;
  std::vector<std::uint32_t> place_of_;
  std::vector<std::vector<std::uint32_t>> members_;
  std::vector<Value> row_potential_;
  std::vector<Value> place_potential_;
  std::vector<Value> distance_;
  std::vector<std::uint32_t> through_;  ///< place → the row that reaches it
  std::vector<char> done_;
  std::vector<std::uint32_t> visited_;
  Value common_ = infinite;
  std::uint32_t common_row_ = none;
  std::uint32_t first_with_room_ = 0;
  std::uint64_t work_ = 0;
};

}  // namespace detail

/// Every place gets at most `capacity[place]` rows. Throws Infeasible if the capacities do not suffice, and Overflow if
/// the matrix holds more than 2^60 bytes.
[[nodiscard]] inline Transported transport_within(std::uint64_t most_work, const TrafficMatrix& matrix,
                                                  std::span<const std::uint32_t> capacity) {
  std::uint64_t room = 0;
  for (const std::uint32_t c : capacity) room += c;
  if (room < matrix.rows()) {
    throw Infeasible(std::to_string(matrix.rows()) + " batches do not fit onto places for " + std::to_string(room) +
                     "; " + std::to_string(matrix.rows()) + " would do");
  }
  std::uint64_t bytes = 0;
  for (const TrafficEntry& entry : matrix.entries) bytes = checked_add(bytes, entry.bytes);
  if (bytes > std::uint64_t{1} << 60U) throw Overflow("a traffic matrix of more than 2^60 bytes");
  return detail::Transport(matrix, capacity).solve(most_work);
}

/// row → place, optimal.
[[nodiscard]] inline std::vector<std::uint32_t> transport(const TrafficMatrix& matrix,
                                                          std::span<const std::uint32_t> capacity) {
  return transport_within(unlimited, matrix, capacity).place_of;
}

}  // namespace orch::placement
