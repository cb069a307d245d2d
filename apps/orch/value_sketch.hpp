// A distribution of non-negative numbers in constant memory: counts of values that share exponent and ten bits of
// mantissa.
//
// Count, mean, smallest and largest are exact; quantiles are at most 0.1 % too small, and exact for integers to 2,048.
// Memory: 8 KiB for every doubling between the smallest and the largest value. Complexity: O(1) a value.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace orch::apps {

class ValueSketch {
 public:
  void add(double value) {
    ++count_;
    sum_ += value;
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
    if (value <= 0) {
      ++zeros_;
      return;
    }
    const std::uint64_t bucket = bucket_of(value);
    if (counts_.empty()) first_ = bucket;
    if (bucket < first_) {
      counts_.insert(counts_.begin(), first_ - bucket, 0);
      first_ = bucket;
    }
    if (bucket - first_ >= counts_.size()) counts_.resize(bucket - first_ + 1);
    ++counts_[bucket - first_];
  }

  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] double mean() const { return sum_ / static_cast<double>(count_); }
  [[nodiscard]] double min() const { return min_; }
  [[nodiscard]] double max() const { return max_; }

  /// The value of rank ⌊p · (count − 1)⌋.
  [[nodiscard]] double quantile(double p) const {
    const auto rank = static_cast<std::uint64_t>(p * static_cast<double>(count_ - 1));
    if (rank + 1 == count_) return max_;
    std::uint64_t before = zeros_;
    if (rank < before) return 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      before += counts_[i];
      if (rank < before) return std::clamp(value_of(first_ + i), min_, max_);
    }
    return max_;
  }

  /// Values from low up to, not including, high; to the accuracy of quantiles.
  [[nodiscard]] std::uint64_t between(double low, double high) const {
    std::uint64_t values = low <= 0 && high > 0 ? zeros_ : 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      const double value = std::clamp(value_of(first_ + i), min_, max_);
      if (value >= low && value < high) values += counts_[i];
    }
    return values;
  }

 private:
  static constexpr int dropped_bits = 52 - 10;
  static std::uint64_t bucket_of(double value) { return std::bit_cast<std::uint64_t>(value) >> dropped_bits; }
  static double value_of(std::uint64_t bucket) { return std::bit_cast<double>(bucket << dropped_bits); }

  std::uint64_t count_ = 0;
  double sum_ = 0;
  double min_ = std::numeric_limits<double>::infinity();
  double max_ = 0;
  std::uint64_t zeros_ = 0;
  std::uint64_t first_ = 0;
  std::vector<std::uint64_t> counts_;
};

}  // namespace orch::apps
