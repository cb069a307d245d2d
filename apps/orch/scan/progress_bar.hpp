// A bar on a terminal: share of the input's bytes, members so far and a second. Nothing where standard error is no
// terminal. Methods may be called from several threads; draws at most ten times a second.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <mutex>
#include <string>

namespace orch::scan {

class ProgressBar {
 public:
  explicit ProgressBar(std::uint64_t total_bytes) : total_(std::max<std::uint64_t>(1, total_bytes)) {}
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() {
    if (drawn_) std::cerr << "\r\x1b[K" << std::flush;
  }

  void add(std::uint64_t bytes, std::uint64_t members) {
    bytes_ += bytes;
    members_ += members;
    if (!terminal_) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    const auto now = std::chrono::steady_clock::now();
    if (!lock.owns_lock() || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    draw(std::chrono::duration<double>(now - begin_).count());
  }

 private:
  void draw(double seconds) {
    constexpr std::size_t width = 30;
    const double share = std::min(1.0, static_cast<double>(bytes_) / static_cast<double>(total_));
    const auto full = static_cast<std::size_t>(share * width);
    std::cerr << fmt::format("\r[{}{}] {:3.0f}%  {} members, {:.0f}/s\x1b[K", std::string(full, '#'),
                             std::string(width - full, ' '), share * 100, members_.load(),
                             static_cast<double>(members_) / seconds)
              << std::flush;
    drawn_ = true;
  }

  using Time = std::chrono::steady_clock::time_point;
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  bool drawn_ = false;
  Time begin_ = std::chrono::steady_clock::now();
  Time last_ = begin_;
  std::mutex mutex_;
  std::uint64_t total_;
  std::atomic<std::uint64_t> bytes_ = 0;
  std::atomic<std::uint64_t> members_ = 0;
};

}  // namespace orch::scan
