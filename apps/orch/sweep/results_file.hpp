// Results of a sweep: a file with a row for every point, and a table on the terminal.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sweep_file.hpp"

namespace orch::sweep {

/// Throws InvalidInput unless the name ends in .jsonl or .csv and is no folder's.
void check_results_name(const std::string& path);

/// `lines`: the results in the grid's order, each one line of JSON. JSON Lines, or for a name that ends in .csv a table
/// (RFC 4180) with a column for every name that any row has. The file is on disk when this returns.
void write_results(const std::vector<std::string>& lines, const std::string& path);

/// What varies, and the main figures; then what points say that did not end well.
void print_results(const std::vector<std::string>& varied, const std::vector<std::string>& lines);

}  // namespace orch::sweep
