// A line that says how many samples are done, on a terminal that waits for more than two seconds; nothing elsewhere.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "printable.hpp"

namespace orch::apps {

class SampleProgress {
 public:
  /// `total` = 0: not known.
  explicit SampleProgress(const std::string& label, std::uint64_t total = 0)
      : label_(printable(label)), total_(total) {}
  SampleProgress(const SampleProgress&) = delete;
  SampleProgress& operator=(const SampleProgress&) = delete;
  ~SampleProgress() {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }

  void to(std::uint64_t done) {
    done_ = done;
    show();
  }
  /// One sample more; looks at the clock now and then.
  void step() {
    if (++done_ % 65536 == 0) show();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void show() {
    if (!terminal_ || Clock::now() < next_) return;
    next_ = Clock::now() + std::chrono::milliseconds(200);
    shown_ = true;
    const double millions = static_cast<double>(done_) * 1e-6;
    if (total_ == 0) {
      std::fprintf(stderr, "\r%s: %.1f million samples", label_.c_str(), millions);
    } else {
      std::fprintf(stderr, "\r%s: %.1f of %.1f million samples", label_.c_str(), millions,
                   static_cast<double>(total_) * 1e-6);
    }
    std::fflush(stderr);
  }

  std::string label_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
  Clock::time_point next_ = Clock::now() + std::chrono::seconds(2);
};

}  // namespace orch::apps
