// Timelines: simulated steps as Chrome/Perfetto trace events (open them at ui.perfetto.dev).
// One process per rank, one track each for compute, NVLink and NIC; times in microseconds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common.hpp"

namespace orch::apps {

class Timeline {
 public:
  explicit Timeline(std::vector<std::uint32_t> ranks);
  /// Appends a step behind the previous one.
  void add(std::uint32_t step, const StepPlan& plan, const sim::PlayedStep& played);
  void write(const std::string& path) const;

 private:
  std::vector<std::uint32_t> ranks_;
  Json events_ = Json::array();
  double begin_us_ = 0;
  std::uint64_t flows_ = 0;
};

}  // namespace orch::apps
