// The subcommands of `orch`. Each registers itself, with its options and examples, and runs from CLI11's callback;
// errors leave it as orch::Error and become exit codes in main.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace orch::apps {

/// Asks for one subcommand. CLI11's own requirement would hide the name of an unknown one.
inline void need_subcommand(CLI::App& app) {
  app.require_subcommand(0, 1);
  app.callback([&app] {
    if (app.get_subcommands().empty()) throw CLI::RequiredError("A subcommand");
  });
}

/// Sets `exit_code` to 1 if `trace diff` finds traces further apart than allowed.
void add_trace_commands(CLI::App& app, int& exit_code);
void add_trace_stats_command(CLI::App& trace);
void add_trace_validate_command(CLI::App& trace);
void add_trace_generate_command(CLI::App& trace);
void add_trace_fit_command(CLI::App& trace);
void add_trace_diff_command(CLI::App& trace, int& exit_code);
void add_trace_tools_commands(CLI::App& trace);
void add_trace_shuffle_command(CLI::App& trace);
void add_convert_command(CLI::App& trace);
void add_balance_command(CLI::App& app);
void add_plan_command(CLI::App& app);
/// Sets `exit_code` to 3 if the simulated system runs out of memory.
void add_simulate_command(CLI::App& app, int& exit_code);
void add_compare_command(CLI::App& app);
void add_fit_command(CLI::App& app);
void add_validate_command(CLI::App& app);
/// Sets `exit_code` to 1 if a point fails.
void add_sweep_command(CLI::App& app, int& exit_code);

}  // namespace orch::apps
