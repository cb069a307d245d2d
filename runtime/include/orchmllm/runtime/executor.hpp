// Executes step plans on one rank: raw inputs to their phases, every encoder's outputs to what it feeds, and gradients
// the same way back, with the phases' compute in between; and checks every element that arrives.
//
// Every phase ends with all ranks waiting for the slowest one, as a training step does. Buffers are used again from
// step to step, in the host's memory or a GPU's. What is not checked (Verify::off) is not written either: then only the
// exchange itself is run.
// Complexity: O(items of the phases + bytes of the rank) a step. Throws TransportError.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/runtime/contents.hpp"
#include "orchmllm/runtime/exchange.hpp"

namespace orch::runtime {

struct ExecutorOptions {
  Verify verify = Verify::full;
  std::uint64_t seed = 0;  ///< of the payload
  /// Runs a phase's compute, encoders and LLM by their place in the plan.
  std::function<void(std::size_t phase, Direction direction)> compute = {};
  /// Told before each part of a step: "step 3, vision -> llm".
  std::function<void(const std::string& what)> begin = {};
};

/// One step on one rank. Times in seconds.
struct StepReport {
  ExchangeCount exchange;
  std::vector<std::array<double, 2>> route_seconds;  ///< route → messages by Direction, part of the exchange's seconds
  std::vector<double> compute_seconds;               ///< by phase, forward and backward
  std::vector<double> wait_seconds;                  ///< by phase: for slower ranks
  double verify_seconds = 0;                         ///< writing and checking payload, and waiting for others who do
  double seconds = 0;
  std::uint64_t verified_bytes = 0;
  std::uint64_t mismatches = 0;       ///< elements
  std::vector<std::string> examples;  ///< of mismatches, at most four
};

template <Transport T, Memory M = HostMemory>
class Executor {
 public:
  Executor(T& transport, ExecutorOptions options, M memory = {})
      : transport_(transport), memory_(std::move(memory)), options_(std::move(options)) {}

  /// `view` is this rank's view of `plan`.
  [[nodiscard]] StepReport run(std::uint64_t step, const StepPlan& plan, const RankView& view) {
    step_ = step;
    plan_ = &plan;
    report_ = {};
    report_.route_seconds.assign(plan.routes.size(), {0, 0});
    report_.compute_seconds.resize(plan.phases.size(), 0);
    report_.wait_seconds.resize(plan.phases.size(), 0);
    Stopwatch watch;
    prepare(view);
    const std::size_t llm = plan.phases.size() - 1;
    for (std::size_t r = 0; r < plan.routes.size(); ++r) {
      if (plan.routes[r].is_input()) travel(r, Direction::forward);
    }
    for (std::size_t phase = 0; phase < llm; ++phase) {
      compute(phase, Direction::forward);
      for (const std::size_t r : outputs_of(phase)) travel(r, Direction::forward);
    }
    compute(llm, Direction::forward);
    compute(llm, Direction::backward);
    for (std::size_t phase = llm; phase-- > 0;) {
      for (const std::size_t r : outputs_of(phase)) travel(r, Direction::backward);
      compute(phase, Direction::backward);
    }
    watch.add_to(report_.seconds);
    return std::move(report_);
  }

 private:
  using Buffer = typename M::Buffer;

  /// What a route needs through a step.
  struct Prepared {
    RouteLegs legs;
    Contents made, used;
    std::vector<Buffer> made_memory;
    std::vector<Buffer> used_memory;  ///< of raw inputs; outputs end in memory that encoders share
  };

  void prepare(const RankView& view) {
    const std::size_t routes = plan_->routes.size();
    prepared_.resize(routes);
    shared_.resize(plan_->phases.size());
    for (std::size_t r = 0; r < routes; ++r) {
      const Route& route = plan_->routes[r];
      Prepared& prepared = prepared_[r];
      prepared.made = made(*plan_, route, transport_.rank());
      prepared.used = used(*plan_, route, transport_.rank());
      prepared.legs = route_legs(view.routes[r], view.phases[route.to], prepared.used.bytes);
      prepared.made_memory.resize(prepared.made.bytes.size());
      prepared.used_memory.resize(prepared.used.bytes.size());
    }
  }

  [[nodiscard]] std::vector<std::size_t> outputs_of(std::size_t phase) const {
    std::vector<std::size_t> routes;
    for (std::size_t r = 0; r < plan_->routes.size(); ++r) {
      if (!plan_->routes[r].is_input() && plan_->routes[r].from == phase) routes.push_back(r);
    }
    return routes;
  }

  [[nodiscard]] RouteMemory memory(std::size_t r) {
    const Route& route = plan_->routes[r];
    Prepared& prepared = prepared_[r];
    const std::size_t fields = prepared.legs.element_bytes.size();
    for (std::vector<Buffer>& staging : staging_) staging.resize(std::max(staging.size(), fields));
    RouteMemory memory;
    for (std::size_t f = 0; f < fields; ++f) {
      const auto size = [&](Place place) { return prepared.legs.place_bytes[static_cast<std::size_t>(place)][f]; };
      memory[0].push_back(memory_.of(prepared.made_memory[f], prepared.made.bytes[f]));
      memory[1].push_back(memory_.of(staging_[0][f], size(Place::gathered)));
      memory[2].push_back(memory_.of(staging_[1][f], size(Place::arrived)));
      Buffer& end = route.is_input() ? prepared.used_memory[f] : shared_[route.to];
      memory[3].push_back(memory_.of(end, prepared.used.bytes[f]));
    }
    return memory;
  }

  [[nodiscard]] std::string name(std::size_t r, Direction direction) const {
    const Route& route = plan_->routes[r];
    const std::string from = route.is_input() ? "home" : plan_->phases[route.from].phase;
    const std::string to = plan_->phases[route.to].phase;
    const std::string where = "step " + std::to_string(step_) + ", exchange ";
    return direction == Direction::forward ? where + from + " -> " + to : where + to + " -> " + from + " (gradients)";
  }

  void travel(std::size_t r, Direction direction) {
    const bool forward = direction == Direction::forward;
    const Prepared& prepared = prepared_[r];
    const std::string what = name(r, direction);
    const RouteMemory places = memory(r);
    const auto& source = forward ? places[0] : places[3];
    const auto& target = forward ? places[3] : places[0];
    const Contents& sent = forward ? prepared.made : prepared.used;
    const Contents& arrived = forward ? prepared.used : prepared.made;
    const Origin origin{options_.seed, step_, direction, r};
    begin(what);
    Stopwatch watch;
    if (options_.verify != Verify::off) {
      memory_.fill(origin, sent.extents, source);
      memory_.settle();
      transport_.barrier(what);  // others write longer: no part of the exchange
      watch.add_to(report_.verify_seconds);
    }
    const double before = report_.exchange.exchange_seconds;
    run_route(transport_, memory_, what, forward ? prepared.legs : inverse(prepared.legs), places, buffers_,
              report_.exchange);
    watch = {};
    transport_.barrier(what);  // who copies more is no straggler of the next phase
    watch.add_to(report_.exchange.exchange_seconds);
    report_.route_seconds[r][static_cast<std::size_t>(direction)] = report_.exchange.exchange_seconds - before;
    report_.verified_bytes +=
        memory_.check(origin, arrived.extents, target, prepared.legs.element_bytes, options_.verify,
                      [&](const Mismatch& mismatch) { report_mismatch(what, r, mismatch); });
    if (options_.verify != Verify::off) transport_.barrier(what);
    watch.add_to(report_.verify_seconds);
  }

  void report_mismatch(const std::string& what, std::size_t r, const Mismatch& mismatch) {
    constexpr std::size_t most = 4;
    ++report_.mismatches;
    if (report_.examples.size() == most) return;
    const Field& field = plan_->routes[r].exchange.payload[mismatch.extent.field].field;
    report_.examples.push_back("rank " + std::to_string(transport_.rank()) + ", " + what + ", " + field.name +
                               ": sample " + std::to_string(mismatch.extent.sample) + " unit " +
                               std::to_string(mismatch.extent.unit) + ", element " + std::to_string(mismatch.element) +
                               " of " + std::to_string(mismatch.extent.bytes / field.element_bytes) + ": expected " +
                               mismatch.expected + ", found " + mismatch.found);
  }

  void compute(std::size_t phase, Direction direction) {
    const bool forward = direction == Direction::forward;
    const std::string what = "step " + std::to_string(step_) + ", compute " + plan_->phases[phase].phase +
                             (forward ? " forward" : " backward");
    begin(what);
    Stopwatch watch;
    if (options_.compute) options_.compute(phase, direction);
    watch.add_to(report_.compute_seconds[phase]);
    transport_.barrier(what);
    watch.add_to(report_.wait_seconds[phase]);
  }

  void begin(const std::string& what) const {
    if (options_.begin) options_.begin(what);
  }

  T& transport_;
  M memory_;
  ExecutorOptions options_;
  std::uint64_t step_ = 0;
  const StepPlan* plan_ = nullptr;
  StepReport report_;
  std::vector<Prepared> prepared_;
  std::vector<Buffer> shared_;  ///< phase → what other phases' outputs end in
  std::array<std::vector<Buffer>, 2> staging_;
  MessageBuffers<M> buffers_;
};

}  // namespace orch::runtime
