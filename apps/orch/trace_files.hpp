// Traces as files of lines: what commands that rearrange them share. Lines pass through byte for byte.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "orchmllm/io/atomic_file.hpp"
#include "orchmllm/io/trace.hpp"

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

/// A trace that appears whole or not at all.
class TraceWriter {
 public:
  TraceWriter(const std::string& path, std::string metadata) : file_(path), pending_(std::move(metadata)) {}

  void add(std::string_view line) {
    pending_ += line;
    pending_ += '\n';
    if (pending_.size() >= flush_bytes) flush();
  }
  void commit() {
    flush();
    file_.commit();
  }

 private:
  static constexpr std::size_t flush_bytes = std::size_t{1} << 20U;

  void flush() {
    file_.write(pending_);
    pending_.clear();
  }

  io::AtomicFile file_;
  std::string pending_;
};

}  // namespace orch::apps
