// The discrete-event engine: tasks with dependencies on exclusive resources, played in order of time.
//
// A task becomes ready when all tasks before it have finished. Resources are of two kinds:
//
//   Order::program  tasks run in the order in which they were added (a GPU's compute stream)
//   Order::ready    ready tasks run one at a time, first ready first served, ties to the task added first (a link)
//
// A task may need several resources of the second kind at once, a *group* (a collective holds the links of all its
// members): it starts when the last of them is free. A task without a resource starts when it is ready (a barrier is
// such a task of zero length). One *event* is one task's completion. Time is in integer nanoseconds, so the order of
// events never depends on rounding.
//
// Only contended resources need a clock: the finish of any other task is known as soon as its predecessors' are, so
// tasks wait in a queue by time only where first come, first served must be decided.
// Complexity: O(tasks + dependencies + Σ group sizes + n log n) for n tasks on resources of the second kind.
// Guarantee: same graph, same schedule.
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

enum class Order : std::uint8_t { program, ready };

struct Schedule {
  std::vector<Nanoseconds> start;   ///< task → when it began
  std::vector<Nanoseconds> finish;  ///< task → when it ended
  std::vector<Nanoseconds> busy;    ///< resource → time in use
  Nanoseconds makespan = 0;         ///< end of the last task
  std::uint64_t events = 0;
};

class TaskGraph {
 public:
  [[nodiscard]] ResourceId add_resource(Order order = Order::ready);
  /// Resources of Order::ready that a task takes together, named like one resource.
  [[nodiscard]] ResourceId add_group(std::vector<ResourceId> members);
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
  /// The resources that a task occupies: none, one, or a group's.
  [[nodiscard]] std::span<const ResourceId> resources(TaskId task) const;
  /// Capacity for so many tasks and dependencies.
  void reserve(std::size_t tasks, std::size_t edges);

  /// Plays the graph from time 0. Throws InvalidInput if dependencies form a cycle.
  [[nodiscard]] Schedule run() const;

 private:
  struct Resource {
    Order order = Order::ready;
    std::vector<ResourceId> members;  ///< itself, or a group's
  };
  std::vector<Resource> resources_;
  std::vector<Nanoseconds> duration_;
  std::vector<ResourceId> resource_;
  std::vector<Edge> edges_;
};

}  // namespace orch::sim
