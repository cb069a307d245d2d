// Steps to plan, for tests: any model, samples, topology and options.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "models.hpp"
#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/placement/placement.hpp"

namespace orch::test {

using Ranks = std::vector<std::uint32_t>;

struct Step {
  Mllm model;
  PhaseLengths lengths;
  Topology topology;
  Ranks samples, home;
};

/// Nodes of one to four ranks each, homes anywhere.
inline Step any_step(const Mllm& model, PhaseLengths lengths) {
  const auto sizes =
      *rc::gen::container<Ranks>(*rc::gen::inRange<std::size_t>(1, 5), rc::gen::inRange<std::uint32_t>(1, 5));
  Step step{model, std::move(lengths), topology(sizes), {}, {}};
  step.samples.resize(step.lengths.samples());
  std::iota(step.samples.begin(), step.samples.end(), 0U);
  step.home =
      *rc::gen::container<Ranks>(step.samples.size(), rc::gen::inRange<std::uint32_t>(0, step.topology.ranks()));
  return step;
}

/// The two-rank step that the examples of errors are about: one sample of two images on rank 0.
inline Step small_step() {
  Mllm model = plain_model();
  model.encoders.resize(1);
  const PhaseLengths lengths = lengths_of(model, {counted(10, {{100, 5}, {100, 5}}), counted(10), counted(3)});
  return {model, lengths, uniform_topology(2, 2), {0, 1, 2}, {0, 0, 1}};
}

inline StepPlan plan_of(const Step& step, const StepOptions& options = {}) {
  return plan_step(step.model, step.lengths, step.samples, step.home, step.topology, options);
}

inline StepOptions balancers(Balancer encoders, Balancer llm) {
  return {.encoders = {.balancer = encoders}, .llm = {.balancer = llm}};
}

/// Every balancer, granularity, placement and schedule.
inline StepOptions any_options() {
  StepOptions options;
  options.encoders.balancer = *rc::gen::element(Balancer::lpt, Balancer::movement, Balancer::home, Balancer::automatic);
  options.encoders.granularity = *rc::gen::element(Granularity::sample, Granularity::unit);
  options.llm.balancer = *rc::gen::element(Balancer::lpt, Balancer::movement, Balancer::automatic);
  const auto objective = *rc::gen::element<std::optional<PlacementObjective>>(std::nullopt, PlacementObjective::total,
                                                                              PlacementObjective::bottleneck);
  if (objective) {
    options.placer = [objective](const TrafficMatrix& bytes, const Topology& topology) {
      return placement::place(bytes, topology, *objective);
    };
  }
  options.joint = *rc::gen::arbitrary<bool>();
  options.schedule =
      *rc::gen::element(ExchangeSchedule::direct, ExchangeSchedule::hierarchical, ExchangeSchedule::automatic);
  options.rates = {{1e9, 1e8}, 1e-6, 1e-6};
  return options;
}

/// A graph of encoders whose tensors are small enough to be moved by hand: rows of two elements.
inline Mllm tiny_graph() {
  Mllm model = any_graph_model();
  model.llm.hidden = 2;
  for (Encoder& encoder : model.encoders) {
    encoder.transformer.hidden = 2;
    encoder.connector.output = 2;
    if (auto* tiled = std::get_if<TiledImages>(&encoder.rule))
      *tiled = {.tile_px = 4, .patch_px = 1, .class_tokens = 0};
    if (encoder.input_channels > 1) encoder.input_channels = 1;
  }
  return model;
}

inline PhaseLengths tiny_lengths(const Mllm& model) {
  std::vector<Sample> samples(*rc::gen::inRange<std::size_t>(0, 20));
  for (Sample& sample : samples) {
    sample = any_ordered_sample(model);
    for (AudioClip& clip : sample.audio) clip.microseconds = 100'000;
    for (CountedUnits& counted : sample.tokens) {
      for (CountedUnit& unit : counted.units) {
        unit.encoder_length %= 7;
        if (unit.llm_length) *unit.llm_length %= 4;
      }
    }
  }
  return lengths_of(model, samples);
}

}  // namespace orch::test
