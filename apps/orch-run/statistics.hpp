// Repeated timings of what all ranks do together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "orchmllm/runtime/exchange.hpp"
#include "orchmllm/runtime/transport.hpp"

namespace orch::apps {

inline constexpr std::uint32_t fewest_repetitions = 3;
inline constexpr std::uint32_t most_repetitions = 101;

/// The middle value, or the mean of the two; 0 of none.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Repeated {
  double seconds = 0;  ///< median of the repetitions, of the rank where it is largest
  std::uint32_t repetitions = 0;
};

/// Times an act from all ranks being there to all being done; the same on all ranks. The first one warms up and tells
/// how many more fit into `seconds`: 3 to 101, fewer where that takes half as long again. `together`: the end is when
/// all are done, not each by itself.
template <runtime::Transport T, class Act>
[[nodiscard]] Repeated repeat(T& transport, double seconds, Act&& act, bool together = true) {
  const auto timed = [&] {
    transport.barrier("calibrating");
    runtime::Stopwatch watch;
    act();
    if (together) transport.barrier("calibrating");
    double time = 0;
    watch.add_to(time);
    return time;
  };
  const auto largest = [&](double mine) {
    double most = 0;
    for (const std::string& text : transport.all_gather("comparing times", std::to_string(1e9 * mine))) {
      most = std::max(most, 1e-9 * std::strtod(text.c_str(), nullptr));
    }
    return most;
  };
  const double first = std::max(1e-7, largest(timed()));
  const auto fitting = static_cast<std::uint32_t>(std::min<double>(most_repetitions, seconds / first));
  const std::uint32_t count = std::max(fewest_repetitions, fitting);
  std::vector<double> times;
  runtime::Stopwatch watch;
  double over = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    times.push_back(timed());
    watch.add_to(over);
    // What takes long is not repeated at any price, should it turn out to take longer still.
    if (first > 0.01 && largest(over) > 1.5 * seconds) break;
  }
  return {largest(median(times)), static_cast<std::uint32_t>(times.size())};
}

}  // namespace orch::apps
