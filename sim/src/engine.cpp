#include "orchmllm/sim/engine.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <string>

#include "orchmllm/base/error.hpp"

namespace orch::sim {

Nanoseconds to_nanoseconds(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) {
    throw InvalidInput("a duration of " + std::to_string(seconds) + " seconds cannot be simulated");
  }
  return static_cast<Nanoseconds>(std::llround(seconds * 1e9));
}

TaskId TaskGraph::add_task(ResourceId resource, Nanoseconds duration) {
  duration_.push_back(duration);
  resource_.push_back(resource);
  return static_cast<TaskId>(duration_.size() - 1);
}

namespace {

struct Completion {
  Nanoseconds time;
  TaskId task;
  [[nodiscard]] bool operator>(const Completion& other) const {
    return time != other.time ? time > other.time : task > other.task;
  }
};

}  // namespace

Schedule TaskGraph::run() const {
  const std::uint32_t n = tasks();
  // Dependencies as compressed rows: successors of a task in the order in which they were added.
  std::vector<std::uint32_t> first(std::size_t{n} + 1, 0);
  std::vector<std::uint32_t> waiting(n, 0);
  for (const Edge& edge : edges_) {
    ++first[edge.before + 1];
    ++waiting[edge.after];
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<TaskId> successors(edges_.size());
  std::vector<std::uint32_t> next(first.begin(), first.end() - 1);
  for (const Edge& edge : edges_) successors[next[edge.before]++] = edge.after;

  Schedule schedule;
  schedule.start.resize(n);
  schedule.finish.resize(n);
  schedule.busy.assign(resources_, 0);
  std::vector<Nanoseconds> free_at(resources_, 0);
  std::priority_queue<Completion, std::vector<Completion>, std::greater<>> running;

  // First ready, first served: a task's place in its resource's queue is known the moment it becomes ready.
  const auto begin = [&](TaskId task, Nanoseconds now) {
    const ResourceId resource = resource_[task];
    Nanoseconds start = now;
    if (resource != no_resource) {
      start = std::max(now, free_at[resource]);
      free_at[resource] = start + duration_[task];
      schedule.busy[resource] += duration_[task];
    }
    schedule.start[task] = start;
    schedule.finish[task] = start + duration_[task];
    running.push({schedule.finish[task], task});
  };

  for (TaskId task = 0; task < n; ++task) {
    if (waiting[task] == 0) begin(task, 0);
  }
  while (!running.empty()) {
    const auto [now, task] = running.top();
    running.pop();
    ++schedule.events;
    schedule.makespan = now;
    for (std::uint32_t i = first[task]; i < first[task + 1]; ++i) {
      if (--waiting[successors[i]] == 0) begin(successors[i], now);
    }
  }
  if (schedule.events != n)
    throw InvalidInput("the task graph has a cycle: " + std::to_string(n - schedule.events) + " tasks can never start");
  return schedule;
}

}  // namespace orch::sim
