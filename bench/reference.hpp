// Reference implementations that benchmarks compare with, in the same run: the straightforward way, no tuning.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace reference {

/// LPT with std::sort and std::priority_queue.
inline std::vector<std::uint32_t> lpt(std::span<const std::uint64_t> costs, std::uint32_t ranks) {
  std::vector<std::uint32_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return costs[a] != costs[b] ? costs[a] > costs[b] : a < b; });
  using Load = std::pair<std::uint64_t, std::uint32_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> heap;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) heap.push({0, rank});
  std::vector<std::uint32_t> rank_of(costs.size());
  for (const std::uint32_t sample : order) {
    const auto [load, rank] = heap.top();
    heap.pop();
    rank_of[sample] = rank;
    heap.push({load + costs[sample], rank});
  }
  return rank_of;
}

/// Multiway Karmarkar–Karp (largest differencing): every state holds all `ranks` sums and sample lists.
inline std::vector<std::uint32_t> karmarkar_karp(std::span<const std::uint64_t> costs, std::uint32_t ranks) {
  struct Set {
    std::uint64_t sum = 0;
    std::vector<std::uint32_t> samples;
  };
  struct State {
    std::vector<Set> sets;  // by descending sum
    std::uint64_t spread = 0;
    std::uint64_t id = 0;
  };
  const auto smaller = [](const State& a, const State& b) {
    return a.spread != b.spread ? a.spread < b.spread : a.id > b.id;
  };
  std::priority_queue<State, std::vector<State>, decltype(smaller)> heap(smaller);
  for (std::uint32_t sample = 0; sample < costs.size(); ++sample) {
    State state{std::vector<Set>(ranks), costs[sample], sample};
    state.sets[0] = {costs[sample], {sample}};
    heap.push(std::move(state));
  }
  std::uint64_t id = costs.size();
  while (heap.size() > 1) {
    State a = std::move(const_cast<State&>(heap.top()));
    heap.pop();
    State b = std::move(const_cast<State&>(heap.top()));
    heap.pop();
    for (std::uint32_t i = 0; i < ranks; ++i) {
      Set& into = a.sets[i];
      Set& from = b.sets[ranks - 1 - i];
      into.sum += from.sum;
      into.samples.insert(into.samples.end(), from.samples.begin(), from.samples.end());
    }
    std::sort(a.sets.begin(), a.sets.end(), [](const Set& x, const Set& y) { return x.sum > y.sum; });
    a.spread = a.sets.front().sum - a.sets.back().sum;
    a.id = id++;
    heap.push(std::move(a));
  }
  std::vector<std::uint32_t> rank_of(costs.size());
  if (costs.empty()) return rank_of;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (const std::uint32_t sample : heap.top().sets[rank].samples) rank_of[sample] = rank;
  }
  return rank_of;
}

}  // namespace reference
