// orch simulate: one strategy on a cluster, with timeline.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <numeric>
#include <optional>

#include "commands.hpp"
#include "printable.hpp"
#include "results.hpp"
#include "simulation.hpp"
#include "timeline.hpp"

namespace orch::apps {

namespace {

sim::StrategyResult run(const SimulateOptions& options, const RunInputs& inputs, const sim::Progress& progress = {},
                        const sim::Observe& observe = {}) {
  return sim::simulate(inputs.model, *inputs.lengths, options.cluster_for_run(inputs.cluster), options.configuration(),
                       options.strategy_for_run(options.strategy), progress, observe);
}

Json document(const SimulateOptions& options, const RunInputs& inputs, const sim::StrategyResult& result) {
  Json json = run_header("orchmllm.simulation/2", options, inputs);
  json["settings"] = options.settings();
  json.update(strategy_json(result));
  return json;
}

/// The first node's lanes of so many, unless told otherwise.
std::vector<std::uint32_t> timeline_lanes(const SimulateOptions& options, const sim::Cluster& cluster,
                                          std::uint32_t lanes) {
  std::vector<std::uint32_t> shown = options.timeline_ranks;
  if (shown.empty()) {
    shown.resize(std::min(lanes, cluster.gpus_per_node));
    std::iota(shown.begin(), shown.end(), 0U);
  }
  for (const std::uint32_t lane : shown) {
    if (lane >= lanes) throw InvalidInput(fmt::format("--timeline-ranks {}: there are {} ranks", lane, lanes));
  }
  return shown;
}

/// The largest batch that fits takes the place of the one that was given.
void set_largest_batch(SimulateOptions& options, const RunInputs& inputs, const sim::Progress& progress = {}) {
  constexpr std::uint32_t most = 1U << 16U;
  const std::uint32_t batch =
      sim::find_batch(inputs.model, *inputs.lengths, options.cluster_for_run(inputs.cluster), options.configuration(),
                      options.strategy_for_run(options.strategy), most, progress);
  if (batch == 0) throw Infeasible("--find-batch: not even one sample a GPU fits into memory");
  options.batch = batch;
}

int simulate(SimulateOptions options) {
  require_distinct({options.trace, options.model, options.cluster}, {options.json, options.csv, options.timeline});
  const RunInputs inputs = read_inputs(options);
  if (options.find_batch) set_largest_batch(options, inputs, progress_line("trying batch"));
  std::optional<Timeline> timeline;  // the strategy may choose how many lanes there are
  sim::Observe observe;
  if (!options.timeline.empty()) {
    observe = [&](std::uint32_t step, const StepPlan& plan, const sim::PlayedStep& played) {
      if (!timeline) timeline.emplace(timeline_lanes(options, inputs.cluster, played.lanes));
      timeline->add(step, plan, played);
    };
  }
  const sim::StrategyResult result = run(options, inputs, progress_line("simulating step"), observe);
  if (timeline) timeline->write(options.timeline);
  if (!options.csv.empty()) write_text(steps_csv(result), options.csv);
  if (!options.json.empty()) write_json(document(options, inputs, result), options.json);
  if (options.json != "-" && options.csv != "-") {
    fmt::print("{} on {} x {}, {} samples a GPU, {} step{}\n\n", printable(inputs.model.name), options.ranks,
               printable(inputs.cluster.name), options.batch, options.steps, options.steps == 1 ? "" : "s");
    print_strategies({result}, inputs.cluster);
    fmt::print("\n");
    print_breakdown(result);
    fmt::print("\n");
    print_totals(result, inputs.cluster);
  }
  return result.oom ? 3 : 0;
}

std::string unknown_strategy(const std::string& name) {
  try {
    static_cast<void>(sim::strategy(name));
    return "";
  } catch (const InvalidInput& error) {
    return error.what();
  }
}

}  // namespace

void add_simulate_options(CLI::App& command, SimulateOptions& options) {
  add_run_options(command, options);
  command.add_option("--strategy", options.strategy, sim::strategy_names())
      ->check(unknown_strategy)
      ->capture_default_str();
  command.add_flag("--find-batch", options.find_batch, "Simulate the largest batch that fits into memory");
  add_system_options(command, options);
  command.add_option("--csv", options.csv, "Write a row for every step; - is standard output")
      ->type_name("FILE")
      ->group(outputs_group);
  CLI::Option* timeline =
      command.add_option("--timeline", options.timeline, "Write a Perfetto timeline (trace-event JSON)")
          ->type_name("FILE")
          ->group(outputs_group);
  command
      .add_option("--timeline-ranks", options.timeline_ranks,
                  "Ranks in the timeline (default: a node's; of pipelines rank · stages + stage)")
      ->delimiter(',')
      ->needs(timeline)
      ->group(outputs_group);
}

Json simulation_json(SimulateOptions options, const RunInputs& inputs) {
  if (options.find_batch) set_largest_batch(options, inputs);
  return document(options, inputs, run(options, inputs));
}

void add_simulate_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command = app.add_subcommand("simulate", "Simulate training steps under one strategy");
  add_simulate_options(*command, *options);
  command->footer(
      "Exit code 3 if the simulated system runs out of memory.\n"
      "Examples:\n"
      "  orch simulate --trace traces/omni-demo.jsonl.gz --model mllm-10b --cluster h100-8x400g --gpus 64 --batch 16\n"
      "  orch simulate --trace my.jsonl.gz --model mllm-84b --cluster h200-8x400g --gpus 2560 --batch 8 --shard 256 "
      "\\\n"
      "                --steps 3 --timeline steps.json --json -\n"
      "  orch simulate --trace my.jsonl.gz --model mllm-84b --cluster megatron-h100 --gpus 512 --strategy megatron\n"
      "  orch simulate --trace my.jsonl.gz --model mllm-10b --cluster h100-8x400g --gpus 64 --find-batch");
  command->callback([options, &exit_code] { exit_code = simulate(*options); });
}

}  // namespace orch::apps
