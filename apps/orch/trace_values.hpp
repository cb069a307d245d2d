// All sizes of a trace, by task and quantity (named as in profile.hpp): what `trace fit` and `trace diff` look at.
//
// Memory: 8 bytes a value and 4 bytes a sample and quantity; `orch trace sample` first where that is too much.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/io/trace.hpp"

namespace orch::apps {

/// One quantity of one task.
struct QuantityValues {
  std::vector<double> all;                          ///< of every unit; sorted by finish()
  std::vector<float> of_sample;                     ///< sample → value of its first unit, NaN without units
  std::vector<std::pair<float, float>> neighbours;  ///< of a sample's first two units
};

/// What LLM lengths of counted units are.
struct LlmLengths {
  bool given = false;
  bool same_ratio = true;
  std::uint32_t ratio = 0;  ///< encoder tokens per LLM token, if the same everywhere
};

struct TaskValues {
  std::uint64_t samples = 0;
  std::uint64_t with_units = 0;
  std::uint64_t with_order = 0;  ///< of those with units
  std::map<std::string, QuantityValues> quantities;
  std::map<std::string, LlmLengths> llm;  ///< phase → lengths

  void add(const Sample& sample);
  /// Sorts, and fills in samples that came before a quantity was first seen, or after it was last seen.
  void finish();

 private:
  void add_value(const std::string& quantity, double value, std::size_t unit);
};

struct TraceValues {
  io::TraceInfo info;
  std::map<std::string, TaskValues> tasks;
};

/// Tasks with fewer than `least` samples are pooled as "other".
[[nodiscard]] TraceValues read_values(const std::string& path, std::uint64_t least);

/// Name of the pool.
inline const std::string pooled_task = "other";

}  // namespace orch::apps
