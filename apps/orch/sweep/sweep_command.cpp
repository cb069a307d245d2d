// orch sweep: a grid of simulations.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <future>
#include <memory>
#include <set>
#include <thread>

#include "../commands.hpp"
#include "../common.hpp"
#include "distribute.hpp"
#include "journal.hpp"
#include "orchmllm/base/error.hpp"
#include "progress.hpp"
#include "results_file.hpp"

namespace orch::apps {

namespace {

struct SweepOptions {
  std::string file;
  std::string out;
  std::size_t jobs = 0;  ///< 0 = all cores, or one in each of several processes
  bool restart = false;
};

using Rows = std::vector<std::string>;

/// Runs what the journal does not have; all results in the grid's order.
Rows all_results(const SweepOptions& options, sweep::Sweep& sweep, sweep::Journal& journal, sweep::Workers* workers) {
  Rows rows(sweep.size());
  std::set<std::size_t> todo;
  for (std::size_t point = 0; point < rows.size(); ++point) todo.insert(todo.end(), point);
  for (const auto& [point, line] : journal.finished()) {
    rows.at(point) = line;
    todo.erase(point);
  }
  const std::size_t known = rows.size() - todo.size();
  if (known > 0) tell(fmt::format("{} of {} points are done already", known, rows.size()));
  sweep::Progress progress(known, rows.size());
  sweep::Points points(std::move(todo));
  sweep::run_points(sweep, points, options.jobs, workers, [&](const sweep::Finished& finished) {
    journal.append(finished.line);
    rows[finished.point] = finished.line;
    progress.step();
  });
  return rows;
}

/// Everything but what other processes do. Returns the exit code.
int lead(const SweepOptions& options, sweep::Sweep& sweep, sweep::Workers* workers) {
  const std::string journal_path = options.out + ".journal";
  std::vector<std::string> inputs{options.file};
  for (const std::string& path : sweep.inputs()) inputs.push_back(path);
  require_distinct(inputs, {options.out, journal_path});
  sweep::Journal journal(journal_path, sweep.identity(), options.restart);
  const Rows rows = all_results(options, sweep, journal, workers);
  if (workers != nullptr) workers->stop();
  sweep::write_results(rows, options.out);
  journal.remove();
  sweep::print_results(sweep.file().varied, rows);
  std::size_t failed = 0;
  for (const std::string& row : rows) failed += sweep::Json::parse(row).at("status") == "error" ? 1 : 0;
  if (failed == 0) return 0;
  tell(fmt::format("error: {} of {} points failed", failed, rows.size()));
  return 1;
}

int run_alone(const SweepOptions& options) {
  sweep::Sweep sweep(options.file, true);
  return lead(options, sweep, nullptr);
}

/// Rank 0 leads, the others work.
int run_together(const SweepOptions& options, sweep::Processes& processes) {
  const bool leads = processes.rank() == 0;
  sweep::Loading loading =
      std::async(std::launch::async, [&] { return std::make_unique<sweep::Sweep>(options.file, leads); });
  if (!leads) {
    sweep::work(processes, std::move(loading), options.jobs);
    return 0;
  }
  sweep::Workers workers(processes);
  while (loading.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) workers.keep_waiting();
  const std::unique_ptr<sweep::Sweep> sweep = loading.get();
  const int exit_code = lead(options, *sweep, &workers);
  if (!workers.all_stopped()) processes.end_all(exit_code);  // one that hangs would be waited for
  return exit_code;
}

int sweep_command(SweepOptions options) {
  sweep::check_results_name(options.out);
  const bool together = sweep::one_of_several_processes();
  if (options.jobs == 0) options.jobs = together ? 1 : std::max(1U, std::thread::hardware_concurrency());
  if (!together) return run_alone(options);
  sweep::Processes processes;
  try {
    return run_together(options, processes);
  } catch (const std::exception& error) {
    sweep::end_all(processes, error);
  }
}

}  // namespace

void add_sweep_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<SweepOptions>();
  CLI::App* command = app.add_subcommand("sweep", "Simulate a grid of settings, in parallel, resumable");
  command->add_option("file", options->file, "Sweep file (TOML)")->required()->type_name("SWEEP");
  command->add_option("--out", options->out, "Write the results: .jsonl or .csv")->required()->type_name("FILE");
  command->add_option("--jobs", options->jobs, "Points at a time in this process (default: cores; under mpirun: 1)")
      ->check(CLI::Range(1U, 4096U));
  command->add_flag("--restart", options->restart, "Discard what an earlier start has finished");
  command->footer(
      "A sweep file has [run] (options of `orch simulate`, the same at every point), [grid] (option = list of "
      "values),\n"
      "[[zip]] (lists of values that vary together) and [[exclude]] (points to leave out); docs/sweep.md explains "
      "them.\n"
      "A sweep that was stopped continues where it was when the same command is given again: FILE.journal.\n"
      "Out of memory and infeasible are results; exit code 1 if a point fails otherwise.\n"
      "Examples:\n"
      "  orch sweep sim/sweeps/strategies.toml --out results.csv\n"
      "  orch sweep my.toml --out results.jsonl --jobs 8\n"
      "  mpirun -np 64 orch sweep my.toml --out results.jsonl\n"
      "  mpirun -np 4 --map-by ppr:1:node --bind-to none orch sweep my.toml --out results.jsonl --jobs 64");
  command->callback([options, &exit_code] { exit_code = sweep_command(*options); });
}

}  // namespace orch::apps
