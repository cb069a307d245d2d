// orch compare: several strategies on the same batches, side by side.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "commands.hpp"
#include "printable.hpp"
#include "results.hpp"
#include "system_options.hpp"

namespace orch::apps {

namespace {

struct CompareOptions : SystemOptions {
  std::vector<std::string> strategies{"none", "llm-only", "orchmllm", "movement"};
};

void compare(const CompareOptions& options) {
  require_distinct({options.trace, options.model, options.cluster}, {options.json});
  std::vector<sim::Strategy> strategies;
  for (const std::string& name : options.strategies) strategies.push_back(options.strategy_for_run(name));
  const RunInputs inputs = read_inputs(options);
  const sim::Cluster cluster = options.cluster_for_run(inputs.cluster);
  std::vector<sim::StrategyResult> results;
  for (const sim::Strategy& strategy : strategies) {
    results.push_back(sim::simulate(inputs.model, *inputs.lengths, cluster, options.configuration(), strategy,
                                    progress_line(strategy.name + ": step")));
  }
  if (!options.json.empty()) {
    Json json = run_header("orchmllm.compare/2", options, inputs);
    json["settings"] = options.settings();
    json["strategies"] = Json::array();
    for (const sim::StrategyResult& result : results) json["strategies"].push_back(strategy_json(result));
    write_json(json, options.json);
  }
  if (options.json == "-") return;
  fmt::print("{} on {} x {}, {} samples a GPU, {} step{}, {}\n\n", printable(inputs.model.name), options.ranks,
             printable(inputs.cluster.name), options.batch, options.steps, options.steps == 1 ? "" : "s",
             printable(inputs.trace.name));
  print_strategies(results, inputs.cluster);
}

}  // namespace

void add_compare_command(CLI::App& app) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand("compare", "Compare strategies on the same batches");
  add_run_options(*command, *options);
  command->add_option("--strategy", options->strategies, "Strategies, separated by commas")->delimiter(',');
  add_system_options(*command, *options);
  command->footer(
      "A strategy that runs out of memory is marked; the comparison itself still succeeds (exit code 0).\n"
      "Examples:\n"
      "  orch compare --trace traces/omni-demo.jsonl.gz --model mllm-84b --cluster h100-8x400g --gpus 2560 --batch 8\n"
      "  orch compare --trace my.jsonl.gz --model mllm-10b --cluster a100-8x200g --gpus 64 --strategy none,orchmllm "
      "--json -");
  command->callback([options] { compare(*options); });
}

}  // namespace orch::apps
