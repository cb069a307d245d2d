// What `orch balance` reads: lengths, and where given weights, groups and home ranks.
//
// One length a line; CSV with a header of the columns' names, in capitals or not; a JSON list of lengths; or a JSON
// object with a list for every column. Complexity: O(bytes), in memory, at most 1 GiB.
// Throws InvalidInput as FILE:LINE.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orch::apps {

/// Columns, each empty or as long as `length`.
struct BalanceTable {
  std::vector<std::uint64_t> length;
  std::vector<std::uint64_t> weight;
  std::vector<std::uint32_t> group;
  std::vector<std::uint32_t> home;  ///< below the number of ranks
};

/// Reads a file, or standard input for "-".
[[nodiscard]] BalanceTable read_balance_table(const std::string& file, std::uint32_t ranks);

}  // namespace orch::apps
