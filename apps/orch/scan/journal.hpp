// What a scan has finished, beside its output: OUT.journal. A killed scan continues from it.
//
// Records, appended one after another: a line of JSON {"chunk","kind","bytes","check"} and that many bytes. `begin`
// forgets what the chunk has so far, `lines` are lines of the trace, `done` is the chunk's result as JSON. A chunk
// counts once it is done; its identity covers settings, paths, sizes and times, so that a changed file is scanned
// again. A record that is cut short or damaged ends the journal there. While a scan runs it holds a lock on the file.
// Memory: 16 bytes for every 1 MiB of trace. Methods may be called from several threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "chunk.hpp"
#include "orchmllm/io/atomic_file.hpp"

namespace orch::scan {

class Journal {
 public:
  /// Opens or creates. Throws InvalidInput where another scan writes the same output.
  explicit Journal(const std::string& path);
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  /// Removes the file if it holds no finished chunk.
  ~Journal();

  [[nodiscard]] bool done(std::uint64_t chunk) const;
  void begin(std::uint64_t chunk);
  void lines(std::uint64_t chunk, std::string_view lines);
  void finish(std::uint64_t chunk, const ChunkResult& result);

  [[nodiscard]] const ChunkResult& result(std::uint64_t chunk) const;
  /// Copies the lines of a finished chunk.
  void copy(std::uint64_t chunk, io::AtomicFile& to) const;
  void remove();

 private:
  struct Part {
    std::uint64_t at = 0;
    std::uint64_t bytes = 0;
  };
  struct Entry {
    std::vector<Part> parts;
    ChunkResult result;
    bool done = false;
  };

  void load();
  void apply(std::uint64_t chunk, const std::string& kind, std::uint64_t at, std::string_view payload);
  void append(std::uint64_t chunk, const std::string& kind, std::string_view payload);
  [[noreturn]] void fail() const;

  std::string path_;
  int file_ = -1;
  std::uint64_t end_ = 0;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Entry> entries_;
};

}  // namespace orch::scan
