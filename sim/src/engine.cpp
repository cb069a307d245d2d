#include "orchmllm/sim/engine.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <queue>
#include <string>

#include "orchmllm/base/error.hpp"
#include "orchmllm/sim/fluid.hpp"

namespace orch::sim {

Nanoseconds to_nanoseconds(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) {
    throw InvalidInput("a duration of " + std::to_string(seconds) + " seconds cannot be simulated");
  }
  return static_cast<Nanoseconds>(std::llround(seconds * 1e9));
}

ResourceId TaskGraph::add_resource(Order order) {
  const auto id = static_cast<ResourceId>(resources_.size());
  resources_.push_back({order, {id}});
  return id;
}

ResourceId TaskGraph::add_group(std::vector<ResourceId> members) {
  resources_.push_back({Order::ready, std::move(members)});
  return static_cast<ResourceId>(resources_.size() - 1);
}

TaskId TaskGraph::add_task(ResourceId resource, Nanoseconds duration) {
  duration_.push_back(duration);
  resource_.push_back(resource);
  return static_cast<TaskId>(duration_.size() - 1);
}

std::uint32_t TaskGraph::add_path(std::vector<LinkUse> path) {
  paths_.push_back(std::move(path));
  return static_cast<std::uint32_t>(paths_.size() - 1);
}

TaskId TaskGraph::add_flow(std::uint32_t path, double bytes, Nanoseconds latency, Nanoseconds linger) {
  flows_.push_back({path, bytes, linger});
  return add_task(flow_flag | static_cast<ResourceId>(flows_.size() - 1), latency);
}

std::span<const ResourceId> TaskGraph::resources(TaskId task) const {
  if (resource_[task] == no_resource || is_flow(task)) return {};
  return resources_[resource_[task]].members;
}

void TaskGraph::reserve(std::size_t tasks, std::size_t edges) {
  duration_.reserve(tasks);
  resource_.reserve(tasks);
  edges_.reserve(edges);
}

namespace {

constexpr TaskId no_task = ~TaskId{0};

struct Ready {
  Nanoseconds time;
  TaskId task;
  [[nodiscard]] bool operator>(const Ready& other) const {
    return time != other.time ? time > other.time : task > other.task;
  }
};

}  // namespace

Schedule TaskGraph::run(FluidNetwork* network) const {
  if (!flows_.empty() && network == nullptr) throw InvalidInput("a task graph with flows needs a network to play on");
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
  {
    std::vector<std::uint32_t> next(first.begin(), first.end() - 1);
    for (const Edge& edge : edges_) successors[next[edge.before]++] = edge.after;
  }
  // A task on a resource in program order also waits for the task that was added before it there.
  std::vector<TaskId> next_in_program(n, no_task);
  {
    std::vector<TaskId> latest(resources_.size(), no_task);
    for (TaskId task = 0; task < n; ++task) {
      const ResourceId resource = resource_[task];
      if (resource == no_resource || is_flow(task) || resources_[resource].order != Order::program) continue;
      if (latest[resource] != no_task) {
        next_in_program[latest[resource]] = task;
        ++waiting[task];
      }
      latest[resource] = task;
    }
  }

  Schedule schedule;
  schedule.start.assign(n, 0);  // until it begins: when its last predecessor so far has finished
  schedule.finish.resize(n);
  schedule.busy.assign(resources_.size(), 0);
  std::vector<Nanoseconds> free_at(resources_.size(), 0);
  std::vector<TaskId> finished;  // whose successors have not been told yet
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> queue;

  const auto finish_at = [&](TaskId task, Nanoseconds time) {
    schedule.finish[task] = time;
    schedule.makespan = std::max(schedule.makespan, schedule.finish[task]);
    ++schedule.events;
    finished.push_back(task);
  };
  const auto finish = [&](TaskId task) { finish_at(task, schedule.start[task] + duration_[task]); };
  const auto ready = [&](TaskId task) {
    const ResourceId resource = resource_[task];
    if (is_flow(task) || (resource != no_resource && resources_[resource].order == Order::ready)) {
      queue.push({schedule.start[task], task});
      return;
    }
    if (resource != no_resource) schedule.busy[resource] += duration_[task];
    finish(task);
  };
  const auto tell = [&](TaskId task, Nanoseconds time) {
    schedule.start[task] = std::max(schedule.start[task], time);
    if (--waiting[task] == 0) ready(task);
  };

  std::vector<TaskId> task_of_flow;  // the network numbers flows in the order in which they are handed to it
  std::vector<TaskId> roots;
  for (TaskId task = 0; task < n; ++task) {
    if (waiting[task] == 0) roots.push_back(task);
  }
  for (const TaskId task : roots) ready(task);
  while (true) {
    while (!finished.empty()) {
      const TaskId task = finished.back();
      finished.pop_back();
      if (next_in_program[task] != no_task) tell(next_in_program[task], schedule.finish[task]);
      for (std::uint32_t i = first[task]; i < first[task + 1]; ++i) tell(successors[i], schedule.finish[task]);
    }
    const std::optional<Nanoseconds> network_event = network != nullptr ? network->next_event() : std::nullopt;
    if (queue.empty() && !network_event) break;
    if (network_event && (queue.empty() || *network_event < queue.top().time)) {
      for (const Completion& end : network->advance(*network_event)) finish_at(task_of_flow[end.flow], end.time);
      continue;
    }
    // All that can become ready from here on does so at this task's time or later: its turn has come.
    const TaskId task = queue.top().task;
    queue.pop();
    if (is_flow(task)) {
      const FlowTask& flow = this->flow(task);
      (void)network->start(schedule.start[task] + duration_[task],
                           {.volume = flow.bytes, .path = paths_[flow.path], .linger = flow.linger});
      task_of_flow.push_back(task);
      continue;
    }
    const std::vector<ResourceId>& members = resources_[resource_[task]].members;
    for (const ResourceId member : members) schedule.start[task] = std::max(schedule.start[task], free_at[member]);
    for (const ResourceId member : members) {
      free_at[member] = schedule.start[task] + duration_[task];
      schedule.busy[member] += duration_[task];
    }
    finish(task);
  }
  if (schedule.events != n)
    throw InvalidInput("the task graph has a cycle: " + std::to_string(n - schedule.events) + " tasks can never start");
  return schedule;
}

}  // namespace orch::sim
