#include "timeline.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orch::apps {

namespace {

constexpr int compute_track = 0;
constexpr int link_track_offset = 1;  // resources of a rank: compute, NVLink, NIC

std::string task_name(const sim::TaskTag& tag, const StepPlan& plan, const std::vector<sim::Unit>& units) {
  using sim::Activity;
  const auto unit = [&] { return fmt::format("{} unit {}", plan.phases[units[tag.unit].phase].phase, tag.unit); };
  switch (tag.activity) {
    case Activity::forward:
      return "forward " + unit();
    case Activity::backward:
      return "backward " + unit();
    case Activity::gather:
      return "all-gather " + unit();
    case Activity::reduce:
      return "reduce " + unit();
    case Activity::exchange:
      return "exchange " + plan.phases[tag.unit].phase;
    case Activity::input:
      return "input " + plan.phases[tag.unit].phase;
    case Activity::optimizer:
      return "optimizer";
    case Activity::barrier:
      break;
  }
  return "barrier";
}

}  // namespace

Timeline::Timeline(std::vector<std::uint32_t> ranks) : ranks_(std::move(ranks)) {
  std::sort(ranks_.begin(), ranks_.end());
  for (const std::uint32_t rank : ranks_) {
    events_.push_back(
        {{"ph", "M"}, {"pid", rank}, {"name", "process_name"}, {"args", {{"name", fmt::format("rank {}", rank)}}}});
    const char* tracks[] = {"compute", "NVLink", "NIC"};
    for (int track = compute_track; track < compute_track + link_track_offset + 2; ++track) {
      events_.push_back(
          {{"ph", "M"}, {"pid", rank}, {"tid", track}, {"name", "thread_name"}, {"args", {{"name", tracks[track]}}}});
    }
  }
}

void Timeline::add(std::uint32_t step, const StepPlan& plan, const sim::PlayedStep& played) {
  for (sim::TaskId task = 0; task < played.tags.size(); ++task) {
    const sim::TaskTag& tag = played.tags[task];
    const sim::ResourceId resource = played.graph.resource(task);
    if (resource == sim::no_resource || !std::binary_search(ranks_.begin(), ranks_.end(), tag.rank)) continue;
    const double start = static_cast<double>(played.schedule.start[task]) * 1e-3;
    const double duration = static_cast<double>(played.graph.duration(task)) * 1e-3;
    events_.push_back({{"ph", "X"},
                       {"pid", tag.rank},
                       {"tid", resource % 3},
                       {"name", task_name(tag, plan, played.units)},
                       {"ts", begin_us_ + start},
                       {"dur", duration},
                       {"args", {{"step", step}}}});
  }
  begin_us_ += static_cast<double>(played.schedule.makespan) * 1e-3;
}

void Timeline::write(const std::string& path) const {
  write_json({{"displayTimeUnit", "ms"}, {"traceEvents", events_}}, path);
}

}  // namespace orch::apps
