// orch-run: executes step plans on ranks over MPI or NCCL, checks every byte, measures.
// Exit codes: 0 done, 2 bad usage or input, or ranks that differ in it, 3 infeasible, 1 anything else.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iostream>
#include <memory>

#include "orchmllm/io/atomic_file.hpp"
#include "orchmllm/runtime/activity.hpp"
#include "orchmllm/runtime/agreement.hpp"
#include "orchmllm/version.hpp"
#ifdef ORCH_RUN_HAVE_CALIBRATE
#include "calibrate.hpp"
#endif
#include "report.hpp"
#include "run.hpp"

namespace {

using namespace orch;
using namespace orch::apps;

/// "orch-run: error: rank 3: ", where a signal handler can read it.
std::array<char, 64> prefix{"orch-run: error: "};

void say(const char* text) noexcept {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void say_activity(const char* reason) noexcept {
  std::array<char, 512> line{};
  for (const char* part : {static_cast<const char*>(prefix.data()), reason, runtime::activity(), "\n"}) {
    std::strncat(line.data(), part, line.size() - std::strlen(line.data()) - 1);
  }
  say(line.data());
}

/// Launchers forward what ranks say, and drop what they have not read when the job ends.
void let_it_be_read(double seconds) noexcept {
  timespec time{static_cast<time_t>(seconds), static_cast<long>(1e9 * (seconds - std::floor(seconds)))};
  nanosleep(&time, nullptr);
}

/// Says where the rank was, leaves no file half written, and ends as the signal would have ended the program.
void end_by_signal(int signal) {
  say_activity(signal == SIGINT ? "interrupted in " : "told to end in ");
  io::remove_pending_files();
  let_it_be_read(0.3);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// MPI offers no time-out of its own for its beginning and end.
void end_by_alarm(int) {
  say_activity("time-out: ");
  let_it_be_read(0.3);
  _exit(1);
}

/// Ends the process if what follows takes longer; alarm(0) lifts it.
void set_alarm(const char* activity, double seconds) {
  runtime::set_activity(activity);
  std::signal(SIGALRM, end_by_alarm);
  alarm(static_cast<unsigned>(std::ceil(seconds)));
}

int execute_and_report(Backend& backend, const ExecuteOptions& given) {
  ExecuteOptions options = given;
  options.ranks = backend.ranks();
  const std::vector<Run> runs = execute(backend, options);
  static_cast<void>(runtime::agree(backend, "writing the result", [&] {
    if (backend.rank() == 0 && !options.json.empty()) write_json(report_json(options, runs), options.json);
    return std::string();
  }));
  std::uint64_t wrong = 0;
  for (const Run& run : runs) wrong += mismatches(run);
  if (backend.rank() == 0) {
    if (options.json != "-") print_report(options, runs);
    for (const Run& run : runs) {
      for (const std::string& example : mismatch_examples(run)) std::cerr << "orch-run: error: " << example << "\n";
    }
    if (wrong > 0) std::cerr << fmt::format("orch-run: error: {} elements are not what they should be\n", wrong);
    if (std::fflush(stdout) != 0) throw Error("standard output: cannot be written", 1);
  }
  return wrong == 0 ? 0 : 1;
}

/// What the command line asks for.
struct Task {
  ExecuteOptions execute;
  CalibrateOptions calibrate;
  bool calibrates = false;
  std::string usage_error;

  [[nodiscard]] const TransportOptions& transport() const {
    if (calibrates) return calibrate;
    return execute;
  }
};

/// What all ranks must have right before they begin, and what decides which way they go; told once.
void require_task(runtime::ControlPlane& control, const Task& task) {
  const TransportOptions& transport = task.transport();
  const auto say = [&] {
    if (!task.usage_error.empty()) throw InvalidInput(task.usage_error);
    const ExecuteOptions& options = task.execute;
    if (!task.calibrates) require_distinct({options.trace, options.model, options.cluster}, {options.json});
    require_transport(control, transport.transport);
    const int channels = transport.nccl_channels;
    return transport.transport + (channels > 0 ? fmt::format(" (--nccl-channels {})", channels) : "") +
           (task.calibrates ? " (calibrate)" : "");
  };
  runtime::require_equal("--transport", runtime::agree(control, "reading options", say));
}

/// The backend is the caller's, so that it still stands while an error is told.
int perform(runtime::ControlPlane& control, const Task& task, std::unique_ptr<Backend>& backend) {
  require_task(control, task);
  backend = make_backend(control, task.transport());
  if (!task.calibrates) return execute_and_report(*backend, task.execute);
#ifdef ORCH_RUN_HAVE_CALIBRATE
  calibrate(*backend, task.calibrate);
  return 0;
#else
  throw runtime::AgreedError("calibrate is not in this build: it needs Eigen (libeigen3-dev)", 2);
#endif
}

int run_ranks(int argc, char** argv, const Task& task) {
  const TransportOptions& options = task.transport();
  const double timeout = options.timeout_seconds;
  const double patience = std::max(60.0, timeout + 10);  // a launcher may take long on a busy machine
  set_alarm("starting: not all ranks came", patience);
  const std::unique_ptr<runtime::ControlPlane> control =
      find_control(argc, argv, options.transport,
                   {.timeout = std::chrono::duration<double>(timeout),
                    .spin = std::chrono::duration<double>(options.spin_milliseconds / 1e3)});
  alarm(0);
  fmt::format_to_n(prefix.data(), prefix.size() - 1, "orch-run: error: rank {}: ", control->rank());
  const auto fail = [&](const std::string& message, int exit_code) {
    say((prefix.data() + message + "\n").c_str());
    control->give_up(message);
    std::signal(SIGTERM, SIG_DFL);               // all is said
    let_it_be_read(std::min(1.0, timeout / 4));  // and others who wait say it too
    control->abort(exit_code);
  };
  int exit_code = 1;
  std::unique_ptr<Backend> backend;
  try {
    exit_code = perform(*control, task, backend);
  } catch (const runtime::AgreedError& error) {
    if (control->rank() == 0) std::cerr << "orch-run: error: " << error.what() << std::endl;
    exit_code = error.exit_code();
  } catch (const Error& error) {
    fail(error.what(), error.exit_code());
  } catch (const std::bad_alloc&) {
    fail("not enough memory for an input or setting of this size", 1);
  } catch (const std::exception& error) {
    fail(error.what(), 1);
  }
  set_alarm("ending: not all ranks came", patience);
  backend.reset();
  if (exit_code != 0) {
    std::signal(SIGTERM, SIG_DFL);
    try {
      control->barrier("ending");  // a launcher ends all when the first one ends: not before all is said
    } catch (const Error&) {       // who is gone already knows
    }
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, end_by_signal);
  std::signal(SIGXFSZ, SIG_IGN);  // a full quota is an error of the write, with a message
  CLI::App app("Executes step plans on ranks over MPI or NCCL: every byte checked, every phase measured", "orch-run");
  app.set_version_flag("--version", "orch-run " ORCHMLLM_VERSION);
  Task task;
  add_execute_options(app, task.execute);
  const CLI::App* calibrate = add_calibrate_command(app, task.calibrate);
  try {
    app.parse(argc, argv);
    task.calibrates = calibrate->parsed();
    if (task.calibrates) {
      require_none_before(app, *calibrate);
    } else {
      require_inputs(task.execute);
    }
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    task.calibrates = calibrate->parsed();
    task.usage_error = std::string(error.what()) + "\nRun with --help for more information.";
  }
  try {
    return run_ranks(argc, argv, task);
  } catch (const Error& error) {
    std::cerr << "orch-run: error: " << error.what() << "\n";
    return error.exit_code();
  } catch (const std::exception& error) {
    std::cerr << "orch-run: error: " << error.what() << "\n";
    return 1;
  }
}
