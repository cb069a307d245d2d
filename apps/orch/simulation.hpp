// One simulation: its options and its result, as `orch simulate` has them and `orch sweep` uses them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "system_options.hpp"

namespace orch::apps {

struct SimulateOptions : SystemOptions {
  std::string strategy = "orchmllm";
  bool find_batch = false;
  std::string csv;
  std::string timeline;
  std::vector<std::uint32_t> timeline_ranks;
};

/// All options of `orch simulate`.
void add_simulate_options(CLI::App& command, SimulateOptions& options);

/// Runs the simulation; the document that `orch simulate --json` writes. May be called from several threads.
[[nodiscard]] Json simulation_json(SimulateOptions options, const RunInputs& inputs);

}  // namespace orch::apps
