// Traces as files of lines: what commands that rearrange them share. Lines pass through byte for byte.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "orchmllm/io/trace.hpp"
#include "orchmllm/io/trace_writer.hpp"

namespace orch::apps {

/// What a first pass over a trace tells. Every line has been checked.
struct TraceSummary {
  io::TraceInfo info;
  std::string metadata;     ///< the line, empty if there is none
  std::uint64_t bytes = 0;  ///< of all samples' lines, line ends included
};

/// Reads at most `most` samples. Memory: constant.
[[nodiscard]] TraceSummary summarise(const std::string& path, std::uint64_t most = ~std::uint64_t{0});

/// The metadata of a trace made from this one: `how` is added to its source. Ends with a line end.
[[nodiscard]] std::string derived_metadata(const TraceSummary& summary, const std::string& how, std::uint64_t samples);

}  // namespace orch::apps
