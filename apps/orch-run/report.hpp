// What orch-run says of a run: JSON and tables.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "run.hpp"

namespace orch::apps {

/// One run as a document of its own, several as a document of these.
[[nodiscard]] Json report_json(const ExecuteOptions& options, const std::vector<Run>& runs);
/// Tables, at last one of all runs side by side.
void print_report(const ExecuteOptions& options, const std::vector<Run>& runs);

/// Elements that were not what they should be, all ranks and steps.
[[nodiscard]] std::uint64_t mismatches(const Run& run);
/// Examples of them, in the order of ranks and steps.
[[nodiscard]] std::vector<std::string> mismatch_examples(const Run& run);

}  // namespace orch::apps
