// Scans chunks with a fixed number of threads into a journal and puts the trace together from it.
//
// The trace is the same for any number of threads and however often the scan was killed and continued: chunks are put
// together in the order of the inputs. Memory: what a thread needs for a member, 1 MiB of lines a thread, the paths.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "chunk.hpp"

namespace orch::scan {

struct TraceMetadata {
  std::string source;
  std::string license;
};

/// Writes the trace `out`, whole or not at all, and removes its journal. Throws InvalidInput where no sample is found,
/// for text members without tokens_per_word, and under `strict` for the first corrupt member in order.
[[nodiscard]] ChunkResult scan(const std::vector<std::string>& inputs, const Settings& settings,
                               const TraceMetadata& metadata, const std::string& out);

}  // namespace orch::scan
