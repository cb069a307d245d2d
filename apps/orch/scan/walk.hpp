// From what the user names (folders, shards, files) to chunks, in the order of the trace.
//
// Inputs keep their order; runs of single files among them are one list, whose samples come in the order in which their
// keys appear first. A folder gives its files sorted by key and name (as bytes), then its shards sorted by path. Names
// that begin with a dot are left out, as are members that are neither media nor text. Links to files are followed,
// links to folders only on demand, each folder once. Devices, pipes and sockets are refused as inputs and passed over
// in folders. Complexity: O(n log n) for n files; about 200 bytes of memory a file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "chunk.hpp"

namespace orch::scan {

struct Plan {
  std::vector<Chunk> chunks;
  std::map<std::string, std::uint64_t> ignored;  ///< extension → files of folders that are no members
  std::vector<CorruptMember> unreadable;         ///< folders and links that cannot be followed
};

/// Paths in a list file, one a line; empty lines are left out.
[[nodiscard]] std::vector<std::string> read_list(const std::string& path);

/// Throws InvalidInput for an input that does not exist or is of no known kind.
[[nodiscard]] Plan plan_chunks(const std::vector<std::string>& inputs, const Settings& settings);

}  // namespace orch::scan
