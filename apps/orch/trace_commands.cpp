// orch trace: the subcommands that read, write, record and compare traces, each in a file of its own.
// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"
#include "scan/scan_command.hpp"

namespace orch::apps {

void add_trace_commands(CLI::App& app, int& exit_code) {
  CLI::App* trace = app.add_subcommand("trace", "Read, check, import, record, generate, compare and rearrange traces");
  need_subcommand(*trace);
  add_trace_stats_command(*trace);
  add_trace_validate_command(*trace);
  add_trace_generate_command(*trace);
  add_trace_fit_command(*trace);
  add_trace_diff_command(*trace, exit_code);
  add_trace_tools_commands(*trace);
  add_trace_shuffle_command(*trace);
  add_convert_command(*trace);
  add_scan_command(*trace);
}

}  // namespace orch::apps
