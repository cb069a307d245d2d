// "sweep: 12 of 64 points, 3 min left" on a terminal that waits for more than two seconds; nothing elsewhere.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <string>

namespace orch::sweep {

/// 4000 → "1 h 7 min"
[[nodiscard]] inline std::string duration_text(double seconds) {
  const auto minutes = static_cast<long>(seconds / 60 + 0.5);
  if (seconds < 99) return fmt::format("{:.0f} s", seconds);
  return minutes < 60 ? fmt::format("{} min", minutes) : fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

class Progress {
 public:
  /// `done`: by an earlier start, in no time.
  Progress(std::size_t done, std::size_t total) : done_before_(done), done_(done), total_(total) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (shown_) std::cerr << "\r\x1b[K" << std::flush;
  }

  void step() {
    ++done_;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (!terminal_ || seconds < 2) return;
    const double left = seconds * static_cast<double>(total_ - done_) / static_cast<double>(done_ - done_before_);
    std::cerr << fmt::format("\rsweep: {} of {} points, {} left\x1b[K", done_, total_, duration_text(left))
              << std::flush;
    shown_ = true;
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool terminal_ = isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
  Clock::time_point begin_ = Clock::now();
  std::size_t done_before_;
  std::size_t done_;
  std::size_t total_;
};

}  // namespace orch::sweep
