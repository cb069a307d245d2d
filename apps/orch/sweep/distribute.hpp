// Running the points of a sweep: on threads of this process and, under a launcher, by the other processes too.
//
// Rank 0 hands out points, the others are workers: a worker asks, rank 0 answers. A worker asks when it has finished a
// point, and else ten times a second, also while it loads and runs. One that has been silent for five seconds is taken
// for dead, and its points are handed out again; if it was only suspended, what it sends later counts too. Rank 0 sends
// nothing unasked, for a message to a process that has died may never leave. A worker that gets no answer for a minute
// ends.
//
//   question  {"idle": free threads, "lines": results, "identity": hash once loaded, "error": why it cannot load}
//   answer    {"points": numbers} or {"stop": true}
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pool.hpp"
#include "processes.hpp"
#include "sweep.hpp"

namespace orch::sweep {

/// Points that are still to do, handed out in the grid's order.
class Points {
 public:
  explicit Points(std::set<std::size_t> todo = {}) : waiting_(todo), unfinished_(std::move(todo)) {}

  [[nodiscard]] std::optional<std::size_t> take();
  void give_back(std::size_t point);
  /// False if it was finished before.
  bool finish(std::size_t point);
  [[nodiscard]] bool all_finished() const { return unfinished_.empty(); }

 private:
  std::set<std::size_t> waiting_;
  std::set<std::size_t> unfinished_;
};

/// Called for every point when it is first finished.
using Record = std::function<void(const Finished&)>;

/// The workers, as rank 0 sees them.
class Workers {
 public:
  explicit Workers(Processes& processes);

  /// Answers whoever asks, while rank 0 has nothing to hand out yet.
  void keep_waiting();
  /// Takes results and hands out points. Throws for a worker that cannot load the sweep, or loads another one.
  void serve(const Json& identity, Points& points, const Record& record);
  /// Tells all to stop; returns when they know or are dead.
  void stop();
  [[nodiscard]] bool all_stopped() const;
  [[nodiscard]] Processes& processes() { return processes_; }

 private:
  struct Worker {
    std::chrono::steady_clock::time_point heard = std::chrono::steady_clock::now();
    std::set<std::size_t> points;  ///< handed out to it
    bool silent = false;
    bool stopped = false;
  };
  void take_results(Worker& worker, const Json& question, Points& points, const Record& record);
  void answer(int rank, const Json& text);
  void find_silent();

  Processes& processes_;
  std::vector<Worker> workers_;  ///< by rank; that of rank 0 is not used
};

/// Says what went wrong and ends all processes at once.
[[noreturn]] void end_all(Processes& processes, const std::exception& error);

/// Runs all points. `workers` may be null. An error of `record` ends all processes, or is thrown on where there is one.
void run_points(Sweep& sweep, Points& points, std::size_t jobs, Workers* workers, const Record& record);

using Loading = std::future<std::unique_ptr<Sweep>>;

/// What a process other than rank 0 does until it is told to stop.
void work(Processes& processes, Loading loading, std::size_t jobs);

}  // namespace orch::sweep
