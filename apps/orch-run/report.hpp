// What orch-run says of a run: JSON and tables.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "run.hpp"

namespace orch::apps {

[[nodiscard]] Json report_json(const ExecuteOptions& options, const Run& run);
void print_report(const ExecuteOptions& options, const Run& run);

/// Elements that were not what they should be, all ranks and steps.
[[nodiscard]] std::uint64_t mismatches(const Run& run);
/// Examples of them, in the order of ranks and steps.
[[nodiscard]] std::vector<std::string> mismatch_examples(const Run& run);

}  // namespace orch::apps
