// orch: read and check traces, plan steps, simulate training, compare strategies.
// Exit codes: 0 done, 2 bad usage or bad input, 3 infeasible or out of memory, 1 anything else.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <iostream>

#include "commands.hpp"
#include "number_options.hpp"
#include "orchmllm/base/error.hpp"
#include "orchmllm/io/atomic_file.hpp"
#include "orchmllm/version.hpp"
#include "printable.hpp"

namespace {

using orch::apps::printable;

int run(int argc, char** argv) {
  CLI::App app("Batch post-balancing for multimodal LLM training", "orch");
  app.set_version_flag("--version", "orch " ORCHMLLM_VERSION);
  orch::apps::need_subcommand(app);
  int exit_code = 0;
  orch::apps::add_trace_commands(app, exit_code);
  orch::apps::add_balance_command(app);
  orch::apps::add_plan_command(app);
  orch::apps::add_simulate_command(app, exit_code);
  orch::apps::add_compare_command(app);
  orch::apps::add_fit_command(app);
  orch::apps::add_validate_command(app);
  orch::apps::add_sweep_command(app, exit_code);
  orch::apps::require_decimal_numbers(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::cerr << "orch: error: " << printable(error.what()) << "\nRun with --help for more information.\n";
    return 2;
  }
  return exit_code;
}

/// Leaves no file half written, and ends as the signal would have ended the program.
void end_by_signal(int signal) {
  orch::io::remove_pending_files();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// Throws Error unless all that was written to standard output has arrived.
void require_output() {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return;
  throw orch::Error("standard output: cannot be written", 1);
}

}  // namespace

int main(int argc, char** argv) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, end_by_signal);
  std::signal(SIGXFSZ, SIG_IGN);  // a full quota is an error of the write, with a message
  try {
    const int exit_code = run(argc, argv);
    require_output();
    return exit_code;
  } catch (const orch::Error& error) {
    std::cerr << "orch: error: " << printable(error.what()) << "\n";
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    std::cerr << "orch: error: not enough memory for an input or setting of this size\n";
  } catch (const std::exception& error) {
    const char* where = std::ferror(stdout) != 0 ? "standard output: " : "";  // fmt throws where that refuses
    std::cerr << "orch: error: " << where << printable(error.what()) << "\n";
  }
  return 1;
}
