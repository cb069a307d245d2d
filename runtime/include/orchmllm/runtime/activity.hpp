// What this process does at the moment, where a signal handler can read it: "step 3, vision -> llm: waiting for rank
// 2".
//
// One writer. Two places are written in turn, so that a reader who interrupts the writer finds a whole text.
// Complexity: O(length), no allocation.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

namespace orch::runtime {

namespace detail {

inline std::array<std::array<char, 256>, 2> activities{};
inline std::atomic<unsigned> current_activity{0};

}  // namespace detail

inline void set_activity(std::string_view text) {
  const unsigned next = 1 - detail::current_activity.load();
  std::array<char, 256>& place = detail::activities[next];
  const std::size_t length = std::min(text.size(), place.size() - 1);
  std::copy_n(text.begin(), length, place.begin());
  place[length] = 0;
  detail::current_activity = next;
}

/// Safe in a signal handler.
[[nodiscard]] inline const char* activity() noexcept {
  return detail::activities[detail::current_activity.load()].data();
}

}  // namespace orch::runtime
