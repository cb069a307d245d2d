// Repeated timings of what all ranks do together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "orchmllm/runtime/exchange.hpp"
#include "orchmllm/runtime/transport.hpp"

namespace orch::apps {

inline constexpr std::size_t fewest_repetitions = 3;
inline constexpr std::size_t most_repetitions = 101;

/// The middle value, or the mean of the two; 0 of none.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// The most that any rank says of a time; the same on all ranks, which take part together.
template <runtime::Transport T>
[[nodiscard]] double largest(T& transport, double mine) {
  double most = 0;
  for (const std::string& text : transport.all_gather("comparing times", std::to_string(1e9 * mine))) {
    most = std::max(most, 1e-9 * std::strtod(text.c_str(), nullptr));
  }
  return most;
}

/// Time to measure in. What is left of it is the same on all ranks: that of the rank where least is.
template <runtime::Transport T>
class Budget {
 public:
  Budget(T& transport, double seconds) : transport_(transport), seconds_(seconds) {}

  /// Below zero where it is exceeded. All ranks take part.
  [[nodiscard]] double left() {
    watch_.add_to(over_);
    return seconds_ - largest(transport_, over_);
  }

 private:
  T& transport_;
  double seconds_;
  double over_ = 0;
  runtime::Stopwatch watch_;
};

/// When a repetition ends, and which of them counts.
enum class Timing : std::uint8_t {
  together,  ///< when all ranks are done; the median: what runs see
  apart,     ///< for each rank when it is done; the median
  quickest,  ///< likewise; the quickest: a core takes as long every time, unless it is disturbed
};

struct Repeated {
  double seconds = 0;  ///< of the repetition that counts, of the rank where it is largest
  std::uint32_t repetitions = 0;
};

/// Times an act from all ranks being there; the same on all ranks. Once to warm up, then 3 to 101 times, as long as
/// `seconds` last.
template <runtime::Transport T, class Act>
[[nodiscard]] Repeated repeat(T& transport, double seconds, Timing timing, Act&& act) {
  const auto timed = [&] {
    transport.barrier("calibrating");
    runtime::Stopwatch watch;
    act();
    if (timing == Timing::together) transport.barrier("calibrating");
    double time = 0;
    watch.add_to(time);
    return time;
  };
  Budget budget(transport, seconds);
  static_cast<void>(timed());
  std::vector<double> times;
  // Ranks compare how much time is left before every doubling, not after every repetition.
  for (std::size_t next = fewest_repetitions; next > 0;) {
    for (std::size_t i = 0; i < next; ++i) times.push_back(timed());
    const double left = std::max(0.0, budget.left());
    const double each = (seconds - left) / static_cast<double>(times.size() + 1);
    const auto fitting = static_cast<std::size_t>(std::min(static_cast<double>(most_repetitions), left / each));
    next = std::min({times.size(), most_repetitions - times.size(), fitting});
  }
  const double counts = timing == Timing::quickest ? *std::min_element(times.begin(), times.end()) : median(times);
  return {largest(transport, counts), static_cast<std::uint32_t>(times.size())};
}

/// What else runs on a machine or network only ever adds time: so things are measured in rounds, and of all rounds'
/// times of one thing the smallest counts. Calls `round(its seconds)`, one of `rounds` parts of `seconds`, until no
/// other one as long as the last fits.
template <runtime::Transport T, class Round>
void each_round(T& transport, double seconds, double rounds, Round&& round) {
  Budget budget(transport, seconds);
  double before = seconds;
  double left = seconds;
  do {
    before = left;
    round(std::min(seconds / rounds, left));
    left = budget.left();
  } while (left > 0 && left >= before - left);
}

}  // namespace orch::apps
