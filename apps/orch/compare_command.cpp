// orch compare: several strategies on the same batches, side by side.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "commands.hpp"
#include "common.hpp"
#include "results.hpp"

namespace orch::apps {

namespace {

struct CompareOptions : RunOptions {
  std::vector<std::string> strategies{"none", "llm-only", "orchmllm", "movement"};
};

void compare(const CompareOptions& options) {
  require_distinct({options.trace, options.model, options.cluster}, {options.json});
  std::vector<sim::Strategy> strategies;
  for (const std::string& name : options.strategies) strategies.push_back(sim::strategy(name));
  const RunInputs inputs = read_inputs(options);
  std::vector<sim::StrategyResult> results;
  for (const sim::Strategy& strategy : strategies) {
    results.push_back(sim::simulate(inputs.model, *inputs.lengths, inputs.cluster, options.configuration(), strategy,
                                    progress_line(strategy.name + ": step")));
  }
  if (!options.json.empty()) {
    Json json = run_header("orchmllm.compare/1", options, inputs);
    json["strategies"] = Json::array();
    for (const sim::StrategyResult& result : results) json["strategies"].push_back(strategy_json(result));
    write_json(json, options.json);
  }
  if (options.json == "-") return;
  fmt::print("{} on {} x {}, {} samples a rank, {} step{}, {}\n\n", inputs.model.name, options.ranks,
             inputs.cluster.name, options.batch, options.steps, options.steps == 1 ? "" : "s", inputs.trace.name);
  print_strategies(results, inputs.cluster);
}

}  // namespace

void add_compare_command(CLI::App& app) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand("compare", "Compare strategies on the same batches");
  add_run_options(*command, *options);
  command->add_option("--shard", options->shard, "Ranks that share the model's states (HSDP); 0 = all of them (FSDP)")
      ->capture_default_str();
  command->add_option("--strategy", options->strategies, "Strategies, separated by commas")->delimiter(',');
  command->footer(
      "A strategy that runs out of memory is marked; the comparison itself still succeeds (exit code 0).\n"
      "Examples:\n"
      "  orch compare --trace traces/omni-demo.jsonl.gz --model mllm-84b --cluster h100-8x400g --gpus 2560 --batch 8\n"
      "  orch compare --trace my.jsonl.gz --model mllm-10b --cluster a100-8x200g --gpus 64 --strategy none,orchmllm "
      "--json -");
  command->callback([options] { compare(*options); });
}

}  // namespace orch::apps
