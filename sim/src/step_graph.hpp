// What the programs of a step share: tasks with tags on lanes' resources, and what is measured of a played schedule.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "orchmllm/base/random.hpp"
#include "orchmllm/sim/step.hpp"

namespace orch::sim {

inline constexpr TaskId no_task = ~TaskId{0};

[[nodiscard]] inline double to_seconds(Nanoseconds time) { return static_cast<double>(time) * 1e-9; }

/// A lane is what computes on its own: an instance, or one pipeline stage of it.
class StepGraph {
 public:
  StepGraph(std::uint32_t lanes, std::uint32_t lanes_per_instance, const Conditions& conditions);

  [[nodiscard]] std::uint32_t lanes() const { return lanes_; }
  [[nodiscard]] ResourceId compute(std::uint32_t lane) const { return 3 * lane; }
  [[nodiscard]] ResourceId link(Link link, std::uint32_t lane) const {
    return 3 * lane + (link == Link::intra_node ? 1 : 2);
  }
  /// The same link of several lanes, for a collective.
  [[nodiscard]] ResourceId link_group(Link link, const std::vector<std::uint32_t>& lanes);

  /// A forward or backward pass, or the optimizer; lasts `seconds` under normal conditions.
  TaskId add_compute(double seconds, const TaskTag& tag);
  /// On links, or on nothing.
  TaskId add(ResourceId resource, double seconds, const TaskTag& tag);
  /// On a fluid network: `bytes` over a path, from `latency` seconds after it is ready.
  TaskId add_flow(std::uint32_t path, double bytes, double latency, Nanoseconds linger, const TaskTag& tag) {
    tags_.push_back(tag);
    return graph_.add_flow(path, bytes, to_nanoseconds(latency), linger);
  }
  [[nodiscard]] std::uint32_t add_path(std::vector<LinkUse> path) { return graph_.add_path(std::move(path)); }
  TaskId add_barrier() { return add(no_resource, 0, {}); }
  /// After nothing, if `before` is no task.
  void depend(TaskId before, TaskId after) {
    if (before != no_task) graph_.add_dependency(before, after);
  }
  void reserve(std::size_t tasks, std::size_t edges);
  [[nodiscard]] double link_scale(std::uint32_t lane) const;

  /// Plays, and measures all that is read off the schedule; `units` name the passes' phases.
  [[nodiscard]] PlayedStep play(std::vector<Unit> units, const std::vector<PhaseShape>& shapes,
                                FluidNetwork* network = nullptr);

 private:
  void measure_phases(PlayedStep& played, const std::vector<PhaseShape>& shapes) const;
  void measure_breakdown(PlayedStep& played, std::size_t phases) const;

  std::uint32_t lanes_;
  std::uint32_t lanes_per_instance_;
  const Conditions& conditions_;
  TaskGraph graph_;
  std::vector<TaskTag> tags_;
};

/// Of one GPU that holds `parameters`, of which it updates one of `shards`.
[[nodiscard]] inline double optimizer_seconds(double parameters, double shards, const Cluster& cluster) {
  return parameters / shards * cluster.software.optimizer_traffic_bytes / cluster.gpu.memory_bandwidth;
}

/// Operations and tokens of all instances.
void measure_work(const std::vector<PhaseShape>& shapes, const StepWork& work, const Cluster& cluster,
                  const Parallelism& parallelism, StepResult& result);

}  // namespace orch::sim
