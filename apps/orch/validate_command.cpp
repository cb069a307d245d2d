// orch validate: simulated against measured training runs.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "commands.hpp"
#include "common.hpp"
#include "measured_runs.hpp"
#include "mode_names.hpp"
#include "orchmllm/version.hpp"

namespace orch::apps {

namespace {

struct ValidateOptions {
  std::string runs;
  std::string memory;
  std::string json;
};

struct Comparison {
  MeasuredRun run;
  SimulatedRun simulated;
  [[nodiscard]] double error() const { return relative_error(run, simulated); }
};

/// Absolute errors of some runs.
struct Errors {
  std::vector<double> sorted;
  explicit Errors(std::vector<double> errors) : sorted(std::move(errors)) {
    for (double& error : sorted) error = std::abs(error);
    std::sort(sorted.begin(), sorted.end());
  }
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (const double error : sorted) sum += error;
    return sorted.empty() ? 0 : sum / static_cast<double>(sorted.size());
  }
  [[nodiscard]] double median() const {
    if (sorted.empty()) return 0;
    const std::size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
  [[nodiscard]] double worst() const { return sorted.empty() ? 0 : sorted.back(); }
};

const char* use_of(bool calibrate) { return calibrate ? "calibrate" : "validate"; }

std::vector<Comparison> compare_runs(const std::string& path) {
  std::map<std::string, sim::Cluster> clusters;
  std::vector<Comparison> result;
  for (MeasuredRun& run : read_runs(path)) {
    if (!clusters.contains(run.cluster)) clusters[run.cluster] = sim::load_cluster(run.cluster);
    const SimulatedRun simulated = simulate_run(run, clusters.at(run.cluster));
    result.push_back({std::move(run), simulated});
  }
  return result;
}

Json run_json(const Comparison& c) {
  const sim::Parallelism& p = c.run.parallelism;
  Json json{{"id", c.run.id},
            {"use", use_of(c.run.calibrate)},
            {"cluster", c.run.cluster},
            {"precision", name_in(precision_names, c.run.precision)},
            {"model", c.run.model},
            {"layers", c.run.architecture.llm.layers},
            {"gpus", c.run.gpus},
            {"length", c.run.batch.length},
            {"tensor", p.tensor},
            {"pipeline", p.pipeline},
            {"virtual_stages", p.virtual_stages},
            {"context", p.context},
            {"micro_batches", p.micro_batches},
            {"measured_tokens_per_second_per_gpu", c.run.tokens_per_second_per_gpu},
            {"simulated_tokens_per_second_per_gpu", c.simulated.tokens_per_second_per_gpu},
            {"error", c.error()},
            {"simulated_memory_gib", c.simulated.memory_gib}};
  if (c.run.memory_gib) json["measured_memory_gib"] = *c.run.memory_gib;
  return json;
}

Json summary_json(const std::vector<Comparison>& comparisons) {
  Json json = Json::array();
  std::map<std::string, std::map<bool, std::vector<double>>> by_cluster;
  for (const Comparison& c : comparisons) by_cluster[c.run.cluster][c.run.calibrate].push_back(c.error());
  for (const auto& [cluster, errors] : by_cluster) {
    for (const auto& [calibrate, values] : errors) {
      const Errors e(values);
      json.push_back({{"cluster", cluster},
                      {"use", use_of(calibrate)},
                      {"runs", values.size()},
                      {"mean_error", e.mean()},
                      {"median_error", e.median()},
                      {"worst_error", e.worst()}});
    }
  }
  return json;
}

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }

void print_runs(const std::vector<Comparison>& comparisons) {
  std::vector<std::vector<std::string>> table{
      {"run", "use", "cluster", "", "model", "GPUs", "measured", "simulated", "error %"}};
  for (const Comparison& c : comparisons) {
    table.push_back({c.run.id, use_of(c.run.calibrate), c.run.cluster, name_in(precision_names, c.run.precision),
                     c.run.model, std::to_string(c.run.gpus), fmt::format("{:.0f}", c.run.tokens_per_second_per_gpu),
                     fmt::format("{:.0f}", c.simulated.tokens_per_second_per_gpu),
                     fmt::format("{:+.1f}", 100 * c.error())});
  }
  print_table(table);
  fmt::print("measured and simulated: tokens a second and GPU\n\n");
}

void print_summary(const Json& summary) {
  std::vector<std::vector<std::string>> table{{"cluster", "use", "runs", "mean %", "median %", "worst %"}};
  for (const Json& row : summary) {
    table.push_back({row["cluster"], row["use"], std::to_string(row["runs"].get<int>()),
                     percent(row["mean_error"].get<double>()), percent(row["median_error"].get<double>()),
                     percent(row["worst_error"].get<double>())});
  }
  print_table(table);
}

Json memory_rows_json(const std::string& path) {
  Json json = Json::array();
  for (const MeasuredMemory& row : read_memory(path)) {
    const SimulatedMemory simulated = simulate_memory(row);
    json.push_back({{"id", row.id},
                    {"model", row.model},
                    {"gpus", row.gpus},
                    {"measured_activation_gib", row.activation_gib},
                    {"simulated_activation_gib", simulated.activation_gib},
                    {"activation_error", simulated.activation_gib / row.activation_gib - 1},
                    {"measured_state_gib", row.state_gib},
                    {"simulated_state_gib", simulated.state_gib},
                    {"state_error", simulated.state_gib / row.state_gib - 1}});
  }
  return json;
}

void print_memory(const Json& rows) {
  std::vector<std::vector<std::string>> table{
      {"run", "activations GiB", "simulated", "error %", "states GiB", "simulated", "error %"}};
  for (const Json& row : rows) {
    const auto number = [&](const char* key) { return fmt::format("{:.1f}", row[key].get<double>()); };
    const auto error = [&](const char* key) { return fmt::format("{:+.1f}", 100 * row[key].get<double>()); };
    table.push_back({row["id"], number("measured_activation_gib"), number("simulated_activation_gib"),
                     error("activation_error"), number("measured_state_gib"), number("simulated_state_gib"),
                     error("state_error")});
  }
  fmt::print("\n");
  print_table(table);
}

void validate(const ValidateOptions& options) {
  require_distinct({options.runs, options.memory}, {options.json});
  const std::vector<Comparison> comparisons = compare_runs(options.runs);
  Json json{{"schema", "orchmllm.validation/1"}, {"version", ORCHMLLM_VERSION}, {"runs", Json::array()}};
  for (const Comparison& c : comparisons) json["runs"].push_back(run_json(c));
  json["summary"] = summary_json(comparisons);
  if (!options.memory.empty()) json["memory"] = memory_rows_json(options.memory);
  if (!options.json.empty()) write_json(json, options.json);
  if (options.json == "-") return;
  print_runs(comparisons);
  print_summary(json["summary"]);
  if (!options.memory.empty()) print_memory(json["memory"]);
}

}  // namespace

void add_validate_command(CLI::App& app) {
  auto options = std::make_shared<ValidateOptions>();
  CLI::App* command = app.add_subcommand("validate", "Hold the simulator against measured training runs");
  command->add_option("--runs", options->runs, "Measured runs (CSV; sim/validation/README.md has the columns)")
      ->required();
  command->add_option("--memory", options->memory, "Measured memory of first pipeline stages (CSV)");
  command->add_option("--json", options->json, "Write the result as JSON; - is standard output")->type_name("FILE");
  command->footer(
      "Example:\n  orch validate --runs sim/validation/runs.csv --memory sim/validation/memory.csv --json result.json");
  command->callback([options] { validate(*options); });
}

}  // namespace orch::apps
