#include "timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace orch::apps {

namespace {

constexpr std::uint32_t tracks = 3;  // resources of a rank: compute, NVLink, NIC

std::string task_name(const sim::TaskTag& tag, const StepPlan& plan, const std::vector<sim::Unit>& units) {
  using sim::Activity;
  const auto unit = [&] {
    const std::string phase = plan.phases[units[tag.unit].phase].phase;
    return fmt::format("{} unit {}{}", phase, tag.unit,
                       tag.number > 0 ? fmt::format(" micro-batch {}", tag.number) : "");
  };
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
    case Activity::send:
      return "send";
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
    const char* names[] = {"compute", "NVLink", "NIC"};
    for (std::uint32_t track = 0; track < tracks; ++track) {
      events_.push_back(
          {{"ph", "M"}, {"pid", rank}, {"tid", track}, {"name", "thread_name"}, {"args", {{"name", names[track]}}}});
    }
  }
}

void Timeline::add(std::uint32_t step, const StepPlan& plan, const sim::PlayedStep& played) {
  const auto microseconds = [](sim::Nanoseconds time) { return static_cast<double>(time) * 1e-3; };
  // The parts of one exchange are tied together by flow arrows, from the first shown rank to the others.
  std::map<std::uint32_t, std::uint64_t> flow_of;
  for (sim::TaskId task = 0; task < played.tags.size(); ++task) {
    const sim::TaskTag& tag = played.tags[task];
    if (played.graph.is_flow(task) && std::binary_search(ranks_.begin(), ranks_.end(), tag.lane)) {
      // Flows overlap one another: they are drawn as spans of their own.
      for (const bool begins : {true, false}) {
        events_.push_back(
            {{"ph", begins ? "b" : "e"},
             {"cat", "flow"},
             {"id", flows_},
             {"pid", tag.lane},
             {"name", task_name(tag, plan, played.units)},
             {"ts", begin_us_ + microseconds(begins ? played.schedule.start[task] : played.schedule.finish[task])}});
      }
      ++flows_;
    }
    for (const sim::ResourceId resource : played.graph.resources(task)) {
      const std::uint32_t lane = resource / tracks;
      if (!std::binary_search(ranks_.begin(), ranks_.end(), lane)) continue;
      const double start = begin_us_ + microseconds(played.schedule.start[task]);
      const Json place = {{"pid", lane}, {"tid", resource % tracks}, {"ts", start}};
      Json event = place;
      event.update({{"ph", "X"},
                    {"name", task_name(tag, plan, played.units)},
                    {"dur", microseconds(played.graph.duration(task))},
                    {"args", {{"step", step}}}});
      events_.push_back(std::move(event));
      if (tag.activity != sim::Activity::exchange) continue;
      const auto [flow, first] = flow_of.try_emplace(tag.number, flows_);
      if (first) ++flows_;
      Json arrow = place;
      arrow.update({{"ph", first ? "s" : "t"}, {"id", flow->second}, {"cat", "exchange"}, {"name", "exchange"}});
      events_.push_back(std::move(arrow));
    }
  }
  begin_us_ += played.result.seconds * 1e6;
}

void Timeline::write(const std::string& path) const {
  write_json({{"displayTimeUnit", "ms"}, {"traceEvents", events_}}, path);
}

}  // namespace orch::apps
