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
// A *flow* is a task whose duration is found while playing: it puts bytes on the links of a fluid network (fluid.hpp),
// and takes as long as they need beside all other flows of that time.
//
// Only contended resources and flows need a clock: the finish of any other task is known as soon as its predecessors'
// are, so tasks wait in a queue by time only where first come, first served must be decided. Complexity: O(tasks +
// dependencies + Σ group sizes + n log n) for n tasks on resources of the second kind. Guarantee: same graph, same
// schedule.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "orchmllm/sim/max_min.hpp"

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

class FluidNetwork;

class TaskGraph {
 public:
  [[nodiscard]] ResourceId add_resource(Order order = Order::ready);
  /// Resources of Order::ready that a task takes together, named like one resource.
  [[nodiscard]] ResourceId add_group(std::vector<ResourceId> members);
  [[nodiscard]] TaskId add_task(ResourceId resource, Nanoseconds duration);
  /// A path of a fluid network's links, for any number of flows.
  [[nodiscard]] std::uint32_t add_path(std::vector<LinkUse> path);
  /// Begins to flow `latency` after it is ready. `linger` as in fluid.hpp.
  [[nodiscard]] TaskId add_flow(std::uint32_t path, double bytes, Nanoseconds latency, Nanoseconds linger);
  /// `after` cannot start before `before` has finished.
  void add_dependency(TaskId before, TaskId after) { edges_.push_back({before, after}); }

  [[nodiscard]] std::uint32_t tasks() const { return static_cast<std::uint32_t>(duration_.size()); }
  struct Edge {
    TaskId before;
    TaskId after;
  };
  [[nodiscard]] std::span<const Edge> edges() const { return edges_; }
  [[nodiscard]] bool is_flow(TaskId task) const {
    return resource_[task] != no_resource && (resource_[task] & flow_flag) != 0;
  }
  /// Of a flow, its latency.
  [[nodiscard]] Nanoseconds duration(TaskId task) const { return duration_[task]; }
  [[nodiscard]] ResourceId resource(TaskId task) const { return is_flow(task) ? no_resource : resource_[task]; }
  /// The resources that a task occupies: none, one, or a group's.
  [[nodiscard]] std::span<const ResourceId> resources(TaskId task) const;
  /// Capacity for so many tasks and dependencies.
  void reserve(std::size_t tasks, std::size_t edges);

  /// Plays the graph from time 0; flows on `network`, which nothing has used yet. Throws InvalidInput if dependencies
  /// form a cycle, or there are flows but no network.
  [[nodiscard]] Schedule run(FluidNetwork* network = nullptr) const;

 private:
  struct Resource {
    Order order = Order::ready;
    std::vector<ResourceId> members;  ///< itself, or a group's
  };
  struct FlowTask {
    std::uint32_t path = 0;
    double bytes = 0;
    Nanoseconds linger = 0;
  };
  static constexpr ResourceId flow_flag = 1U << 31U;  ///< resource_ of a flow: this and its place in flows_
  [[nodiscard]] const FlowTask& flow(TaskId task) const { return flows_[resource_[task] & ~flow_flag]; }

  std::vector<Resource> resources_;
  std::vector<Nanoseconds> duration_;
  std::vector<ResourceId> resource_;
  std::vector<Edge> edges_;
  std::vector<std::vector<LinkUse>> paths_;
  std::vector<FlowTask> flows_;
};

}  // namespace orch::sim
