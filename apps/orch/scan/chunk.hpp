// Units of work: a shard, or a run of a folder's files. A chunk is scanned by one thread, is recorded in the journal as
// a whole, and has an identity: a hash of the settings and of the paths, sizes and modification times it covers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orch::scan {

/// A file of a folder or list; its key (path from the folder on, without extension) pairs it with others.
struct LooseFile {
  std::string path;
  std::size_t key_begin = 0;
  std::size_t key_end = 0;
  [[nodiscard]] std::string_view key() const { return std::string_view(path).substr(key_begin, key_end - key_begin); }
  /// The path within its folder.
  [[nodiscard]] std::string name() const { return path.substr(key_begin); }
};

struct Chunk {
  std::string name;  ///< path of the folder or shard; empty for a list
  bool shard = false;
  std::vector<LooseFile> files;
  std::uint64_t bytes = 0;
  std::uint64_t identity = 0;
};

struct CorruptMember {
  std::string input;   ///< folder or shard; empty for a file that was named itself
  std::string member;  ///< within it; empty: the input itself
  std::string error;
  [[nodiscard]] std::string text() const {
    return (input.empty() ? "" : input + ": ") + (member.empty() ? "" : member + ": ") + error;
  }
};

/// What a chunk held. `corrupt` lists up to 2^20 members, `corrupt_members` counts all.
struct ChunkResult {
  std::uint64_t samples = 0;
  std::uint64_t left_out = 0;  ///< samples with a corrupt member
  std::uint64_t images = 0;
  std::uint64_t audio = 0;
  std::uint64_t video = 0;
  std::uint64_t text_tokens = 0;
  std::uint64_t estimated = 0;                   ///< durations that no header states
  std::uint64_t returning_keys = 0;              ///< samples whose key stood before, with another in between
  std::map<std::string, std::uint64_t> ignored;  ///< extension → members
  std::uint64_t corrupt_members = 0;
  std::vector<CorruptMember> corrupt;
};

/// Settings that decide the bytes of a trace.
struct Settings {
  std::string task;
  /// Absent: text members are refused.
  std::optional<double> tokens_per_word;
  bool follow_symlinks = false;
  bool strict = false;
  unsigned jobs = 1;
};

}  // namespace orch::scan
