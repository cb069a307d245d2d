// Files that `orch plan` writes beside its summary: whole plans, traffic matrices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "common.hpp"
#include "orchmllm/orchestrate/step_plan.hpp"

namespace orch::apps {

/// JSON, or CBOR for a name that ends in .cbor; "-" is standard output (JSON).
void write_document(const Json& json, const std::string& path);

/// rank × rank bytes of all of a step's exchanges in the forward pass, a row a line: row = sender, column = receiver.
/// The text format that nccl-tests' alltoallv_perf reads (NCCL_TESTS_ALLTOALLV_MATRIX_FILE). Returns the most bytes
/// that any rank sends or receives.
std::uint64_t write_traffic_matrix(const StepPlan& plan, const std::string& path);

/// How to run what write_traffic_matrix() wrote.
void print_traffic_hint(const std::string& path, std::uint64_t largest_total);

}  // namespace orch::apps
