// The discrete-event engine: tasks with dependencies on exclusive resources, played in order of time.
//
// A task becomes ready when all tasks before it have finished. Ready tasks of one resource run one at a time, first
// ready first served; ties go to the task that was added first. A task without a resource starts when it is ready (a
// barrier is such a task of zero length). One *event* is one task's completion. Time is in integer nanoseconds, so the
// order of events never depends on rounding.
// Complexity: O((tasks + dependencies) + tasks · log(running tasks)). Guarantee: same graph, same schedule.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace orch::sim {

using Nanoseconds = std::uint64_t;
using TaskId = std::uint32_t;
using ResourceId = std::uint32_t;

inline constexpr ResourceId no_resource = ~ResourceId{0};

/// Rounded to nearest; negative or non-finite seconds are refused with InvalidInput.
[[nodiscard]] Nanoseconds to_nanoseconds(double seconds);

struct Schedule {
  std::vector<Nanoseconds> start;   ///< task → when it began
  std::vector<Nanoseconds> finish;  ///< task → when it ended
  std::vector<Nanoseconds> busy;    ///< resource → time in use
  Nanoseconds makespan = 0;         ///< end of the last task
  std::uint64_t events = 0;
};

class TaskGraph {
 public:
  [[nodiscard]] ResourceId add_resource() { return resources_++; }
  [[nodiscard]] TaskId add_task(ResourceId resource, Nanoseconds duration);
  /// `after` cannot start before `before` has finished.
  void add_dependency(TaskId before, TaskId after) { edges_.push_back({before, after}); }

  [[nodiscard]] std::uint32_t tasks() const { return static_cast<std::uint32_t>(duration_.size()); }
  struct Edge {
    TaskId before;
    TaskId after;
  };
  [[nodiscard]] std::span<const Edge> edges() const { return edges_; }
  [[nodiscard]] Nanoseconds duration(TaskId task) const { return duration_[task]; }
  [[nodiscard]] ResourceId resource(TaskId task) const { return resource_[task]; }

  /// Plays the graph from time 0. Throws InvalidInput if dependencies form a cycle.
  [[nodiscard]] Schedule run() const;

 private:
  ResourceId resources_ = 0;
  std::vector<Nanoseconds> duration_;
  std::vector<ResourceId> resource_;
  std::vector<Edge> edges_;
};

}  // namespace orch::sim
