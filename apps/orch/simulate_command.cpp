// orch simulate: one strategy on a cluster, with timeline.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <numeric>

#include "commands.hpp"
#include "results.hpp"
#include "simulation.hpp"
#include "timeline.hpp"

namespace orch::apps {

namespace {

sim::StrategyResult run(const SimulateOptions& options, const RunInputs& inputs, const sim::Progress& progress = {},
                        const sim::Observe& observe = {}) {
  return sim::simulate(inputs.model, *inputs.lengths, inputs.cluster, options.configuration(),
                       sim::strategy(options.strategy), progress, observe);
}

Json document(const SimulateOptions& options, const RunInputs& inputs, const sim::StrategyResult& result) {
  Json json = run_header("orchmllm.simulation/1", options, inputs);
  json.update(strategy_json(result));
  return json;
}

int simulate(const SimulateOptions& options) {
  require_distinct({options.trace, options.model, options.cluster}, {options.json, options.timeline});
  const RunInputs inputs = read_inputs(options);
  std::vector<std::uint32_t> shown = options.timeline_ranks;
  if (shown.empty()) {
    shown.resize(std::min(options.ranks, inputs.cluster.gpus_per_node));
    std::iota(shown.begin(), shown.end(), 0U);
  }
  for (const std::uint32_t rank : shown) {
    if (rank >= options.ranks) {
      throw InvalidInput(fmt::format("--timeline-ranks {}: there are {} ranks", rank, options.ranks));
    }
  }
  Timeline timeline(shown);
  sim::Observe observe;
  if (!options.timeline.empty()) {
    observe = [&](std::uint32_t step, const StepPlan& plan, const sim::PlayedStep& played) {
      timeline.add(step, plan, played);
    };
  }
  const sim::StrategyResult result = run(options, inputs, progress_line("simulating step"), observe);
  if (!options.timeline.empty()) timeline.write(options.timeline);
  if (!options.json.empty()) write_json(document(options, inputs, result), options.json);
  if (options.json != "-") {
    fmt::print("{} on {} x {}, {} samples a rank, {} step{}\n\n", inputs.model.name, options.ranks, inputs.cluster.name,
               options.batch, options.steps, options.steps == 1 ? "" : "s");
    print_strategies({result}, inputs.cluster);
    fmt::print("\n");
    print_breakdown(result);
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
  command.add_option("--shard", options.shard, "Ranks that share the model's states (HSDP); 0 = all of them (FSDP)")
      ->capture_default_str();
  command.add_option("--strategy", options.strategy, "none, llm-only, orchmllm or movement")
      ->check(unknown_strategy)
      ->capture_default_str();
  command.add_option("--timeline", options.timeline, "Write a Perfetto timeline (trace-event JSON)")
      ->type_name("FILE")
      ->group(outputs_group);
  command.add_option("--timeline-ranks", options.timeline_ranks, "Ranks in the timeline (default: the first node)")
      ->delimiter(',')
      ->group(outputs_group);
}

Json simulation_json(const SimulateOptions& options, const RunInputs& inputs) {
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
      "                --steps 3 --timeline steps.json --json -");
  command->callback([options, &exit_code] { exit_code = simulate(*options); });
}

}  // namespace orch::apps
