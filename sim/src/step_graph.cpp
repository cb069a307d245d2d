#include "step_graph.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numbers>
#include <numeric>

namespace orch::sim {

namespace {

/// exp(jitter · z) with z standard normal, the same for the same numbers.
double jitter_factor(double jitter, std::uint64_t seed, std::uint64_t task) {
  Random random(seed, task);
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return std::exp(jitter * radius * std::cos(2 * std::numbers::pi * random.uniform()));
}

bool computes(const TaskTag& tag) {
  return tag.activity == Activity::forward || tag.activity == Activity::backward || tag.activity == Activity::optimizer;
}

bool on_link(const TaskTag& tag) {
  return tag.activity == Activity::gather || tag.activity == Activity::reduce || tag.activity == Activity::exchange ||
         tag.activity == Activity::send;
}

}  // namespace

double Breakdown::total() const {
  double sum = std::accumulate(compute.begin(), compute.end(), 0.0);
  for (const BreakdownPart& part : breakdown_parts) sum += this->*part.seconds;
  return sum;
}

Breakdown& Breakdown::operator+=(const Breakdown& other) {
  compute.resize(std::max(compute.size(), other.compute.size()), 0);
  for (std::size_t p = 0; p < other.compute.size(); ++p) compute[p] += other.compute[p];
  for (const BreakdownPart& part : breakdown_parts) this->*part.seconds += other.*part.seconds;
  return *this;
}

Breakdown& Breakdown::operator/=(double divisor) {
  for (double& seconds : compute) seconds /= divisor;
  for (const BreakdownPart& part : breakdown_parts) this->*part.seconds /= divisor;
  return *this;
}

StepGraph::StepGraph(std::uint32_t lanes, std::uint32_t lanes_per_instance, const Conditions& conditions)
    : lanes_(lanes), lanes_per_instance_(lanes_per_instance), conditions_(conditions) {
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    (void)graph_.add_resource(Order::program);
    (void)graph_.add_resource(Order::ready);
    (void)graph_.add_resource(Order::ready);
  }
}

ResourceId StepGraph::link_group(Link link, const std::vector<std::uint32_t>& lanes) {
  std::vector<ResourceId> members;
  members.reserve(lanes.size());
  for (const std::uint32_t lane : lanes) members.push_back(this->link(link, lane));
  return graph_.add_group(std::move(members));
}

TaskId StepGraph::add_compute(double seconds, const TaskTag& tag) {
  if (!conditions_.compute_scale.empty()) seconds *= conditions_.compute_scale[tag.lane];
  if (conditions_.jitter > 0) seconds *= jitter_factor(conditions_.jitter, conditions_.seed, graph_.tasks());
  return add(compute(tag.lane), seconds, tag);
}

TaskId StepGraph::add(ResourceId resource, double seconds, const TaskTag& tag) {
  tags_.push_back(tag);
  return graph_.add_task(resource, to_nanoseconds(seconds));
}

void StepGraph::reserve(std::size_t tasks, std::size_t edges) {
  graph_.reserve(tasks, edges);
  tags_.reserve(tasks);
}

double StepGraph::link_scale(std::uint32_t lane) const {
  return conditions_.link_scale.empty() ? 1 : conditions_.link_scale[lane];
}

PlayedStep StepGraph::play(std::vector<Unit> units, const std::vector<PhaseShape>& shapes, FluidNetwork* network) {
  PlayedStep played;
  played.schedule = graph_.run(network);
  played.graph = std::move(graph_);
  played.tags = std::move(tags_);
  played.units = std::move(units);
  played.lanes = lanes_;
  played.result.seconds = to_seconds(played.schedule.makespan);
  played.result.events = played.schedule.events;
  Nanoseconds busy = 0;
  for (std::uint32_t lane = 0; lane < lanes_; ++lane) busy += played.schedule.busy[compute(lane)];
  played.result.busy_seconds = to_seconds(busy) / lanes_;
  measure_phases(played, shapes);
  measure_breakdown(played, shapes.size());
  return played;
}

void StepGraph::measure_phases(PlayedStep& played, const std::vector<PhaseShape>& shapes) const {
  struct Span {
    Nanoseconds begin = std::numeric_limits<Nanoseconds>::max();
    Nanoseconds end = 0;
    Nanoseconds busy = 0;
  };
  std::vector<std::array<Span, 2>> spans(shapes.size());
  for (TaskId task = 0; task < played.tags.size(); ++task) {
    const TaskTag& tag = played.tags[task];
    if (tag.activity != Activity::forward && tag.activity != Activity::backward) continue;
    Span& span = spans[played.units[tag.unit].phase][tag.activity == Activity::forward ? 0 : 1];
    span.begin = std::min(span.begin, played.schedule.start[task]);
    span.end = std::max(span.end, played.schedule.finish[task]);
    span.busy += played.schedule.finish[task] - played.schedule.start[task];
  }
  for (std::size_t phase = 0; phase < spans.size(); ++phase) {
    PhaseTimes times{shapes[phase].name, 0, 0};
    // Forward and backward passes of micro-batches take turns: then they share one span.
    const auto& [forward, backward] = spans[phase];
    const Nanoseconds overlap = backward.begin < forward.end
                                    ? std::min(forward.end, backward.end) - std::max(forward.begin, backward.begin)
                                    : 0;
    for (const Span& span : spans[phase]) {
      if (span.end == 0) continue;
      times.busy_seconds += to_seconds(span.busy) / lanes_;
      times.wall_seconds += to_seconds(span.end - span.begin);
    }
    times.wall_seconds -= to_seconds(overlap);
    played.result.phases.push_back(times);
  }
}

/// Gaps between a lane's compute tasks: what ends a gap on a link is exposed for as long as it ran in the gap, the rest
/// is waiting; gaps of a pipeline that no collective ends are bubbles.
void StepGraph::measure_breakdown(PlayedStep& played, std::size_t phases) const {
  const Schedule& schedule = played.schedule;
  const std::vector<TaskTag>& tags = played.tags;
  std::vector<TaskId> last_arrival(tags.size(), no_task);  // compute task → its predecessor on a link that ends last
  for (const auto& [before, after] : played.graph.edges()) {
    if (!computes(tags[after]) || !on_link(tags[before])) continue;
    TaskId& last = last_arrival[after];
    if (last == no_task || schedule.finish[before] > schedule.finish[last]) last = before;
  }
  std::vector<Nanoseconds> compute(phases, 0);
  Nanoseconds optimizer = 0, exchange = 0, collectives = 0, waiting = 0;
  std::vector<Nanoseconds> done(lanes_, 0);
  for (TaskId task = 0; task < tags.size(); ++task) {  // a lane's compute tasks run in the order of their numbers
    const TaskTag& tag = tags[task];
    if (!computes(tag)) continue;
    const Nanoseconds duration = schedule.finish[task] - schedule.start[task];
    (tag.activity == Activity::optimizer ? optimizer : compute[played.units[tag.unit].phase]) += duration;
    const Nanoseconds gap = schedule.start[task] - done[tag.lane];
    Nanoseconds exposed = 0;
    if (const TaskId link = last_arrival[task]; gap > 0 && link != no_task && tags[link].activity != Activity::send &&
                                                schedule.finish[link] == schedule.start[task]) {
      exposed = schedule.finish[link] - std::max(schedule.start[link], done[tag.lane]);
      (tags[link].activity == Activity::exchange ? exchange : collectives) += exposed;
    }
    waiting += gap - exposed;
    done[tag.lane] = schedule.finish[task];
  }
  for (const Nanoseconds end : done) waiting += schedule.makespan - end;
  const auto mean = [&](Nanoseconds sum) { return to_seconds(sum) / lanes_; };
  Breakdown& breakdown = played.result.breakdown;
  for (const Nanoseconds sum : compute) breakdown.compute.push_back(mean(sum));
  breakdown.optimizer = mean(optimizer);
  breakdown.exposed_exchange = mean(exchange);
  breakdown.exposed_collectives = mean(collectives);
  (lanes_per_instance_ > 1 ? breakdown.bubble : breakdown.waiting) = mean(waiting);
}

void measure_work(const std::vector<PhaseShape>& shapes, const StepWork& work, const Cluster& cluster,
                  const Parallelism& parallelism, StepResult& result) {
  const double copies = static_cast<double>(work.instances) / work.simulated();
  for (std::size_t phase = 0; phase < work.work.size(); ++phase) {
    for (const auto& micro_batch : work.work[phase]) {
      for (const PhaseWork& instance : micro_batch) {
        result.model_flops += copies * model_flops(shapes[phase], instance);
        result.hardware_flops +=
            copies * hardware_flops(shapes[phase], instance, cluster.software, parallelism.recompute);
        if (phase + 1 == work.work.size()) result.tokens += copies * (instance.tokens - instance.padding_tokens);
      }
    }
  }
}

}  // namespace orch::sim
