// orch plan: step plans for a trace, with their quality, traffic and planning time.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <memory>

#include "commands.hpp"
#include "common.hpp"
#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/orchestrate/sampler.hpp"

namespace orch::apps {

namespace {

struct PlanOptions : RunOptions {
  std::string balance = "lpt";
  std::string placement = "total";
  double tolerance = 0.01;
  std::string out;
  bool explain = false;

  [[nodiscard]] StepOptions step_options(const sim::Cluster& on) const {
    const Balancer balancer = balance == "none"  ? Balancer::home
                              : balance == "lpt" ? Balancer::lpt
                                                 : Balancer::movement;
    StepOptions step{.encoders = balancer, .llm = balancer, .ranks_per_node = on.gpus_per_node, .tolerance = tolerance};
    if (placement == "total") step.placement = PlacementObjective::total;
    if (placement == "bottleneck") step.placement = PlacementObjective::bottleneck;
    return step;
  }
};

/// Bytes that reach a phase: its raw inputs, and for the LLM the encoder outputs.
Traffic phase_traffic(const StepPlan& plan, std::size_t phase, std::uint32_t gpus_per_node) {
  Traffic sum = traffic(plan.phases[phase].input, gpus_per_node);
  if (phase + 1 != plan.phases.size()) return sum;
  for (const PhasePlan& encoder : plan.encoders()) {
    const Traffic output = traffic(*encoder.output, gpus_per_node);
    sum.local_bytes += output.local_bytes;
    sum.intra_node_bytes += output.intra_node_bytes;
    sum.inter_node_bytes += output.inter_node_bytes;
  }
  return sum;
}

Json phase_json(const StepPlan& plan, std::size_t index, std::uint32_t gpus_per_node) {
  const PhasePlan& phase = plan.phases[index];
  const Traffic moved = phase_traffic(plan, index, gpus_per_node);
  return {{"phase", phase.phase},
          {"samples", phase.assignment.rank_of.size()},
          {"nonempty_samples", phase.nonempty},
          {"ranks", plan.ranks},
          {"solver", phase.assignment.solver},
          {"max_cost", phase.assignment.max_cost()},
          {"mean_cost", phase.assignment.mean_cost()},
          {"lower_bound", phase.assignment.lower_bound},
          {"gap", phase.assignment.gap()},
          {"imbalance_before", phase.imbalance_before},
          {"imbalance_after", phase.assignment.imbalance()},
          {"moved_bytes", moved.moved_bytes()},
          {"inter_node_bytes", moved.inter_node_bytes},
          {"solve_ms", phase.solve_seconds * 1e3}};
}

/// Sums over steps of one phase, for the table.
struct PhaseRow {
  double before = 0, after = 0, gap = 0, moved = 0, inter_node = 0, milliseconds = 0;
};

/// Every balancer and placement on the same batches, side by side.
void explain(const PlanOptions& options, const RunInputs& inputs) {
  const std::vector<std::uint32_t> home = home_ranks(options.ranks, options.batch);
  std::vector<std::vector<std::string>> table{{"balance", "placement"}};
  for (const Encoder& encoder : inputs.model.encoders) table[0].push_back(encoder.phase + " imb.");
  for (const char* name : {"llm imb.", "moved/step", "inter-node/step", "of all bytes %", "plan ms"})
    table[0].emplace_back(name);
  const std::vector<std::pair<std::string, std::string>> modes{
      {"none", "none"}, {"lpt", "none"}, {"lpt", "total"}, {"lpt", "bottleneck"}, {"movement", "none"}};
  for (const auto& [balance, placement] : modes) {
    PlanOptions mode = options;
    mode.balance = balance;
    mode.placement = placement;
    Sampler sampler(inputs.lengths.samples(), options.seed);
    std::vector<double> imbalance(inputs.model.encoders.size() + 1, 0);
    Traffic sum;
    double milliseconds = 0;
    for (std::uint32_t step = 0; step < options.steps; ++step) {
      const StepPlan plan = plan_step(inputs.model, inputs.lengths, sampler.next(home.size()), home, options.ranks,
                                      mode.step_options(inputs.cluster));
      for (std::size_t phase = 0; phase < plan.phases.size(); ++phase) {
        imbalance[phase] += plan.phases[phase].assignment.imbalance() / options.steps;
        milliseconds += plan.phases[phase].solve_seconds * 1e3;
        const Traffic moved = phase_traffic(plan, phase, inputs.cluster.gpus_per_node);
        sum.local_bytes += moved.local_bytes;
        sum.intra_node_bytes += moved.intra_node_bytes;
        sum.inter_node_bytes += moved.inter_node_bytes;
      }
    }
    std::vector<std::string> row{balance, placement};
    for (const double value : imbalance) row.push_back(fmt::format("{:.4f}", value));
    const auto steps = static_cast<double>(options.steps);
    const auto all = static_cast<double>(sum.local_bytes + sum.moved_bytes());
    row.push_back(bytes_text(static_cast<double>(sum.moved_bytes()) / steps));
    row.push_back(bytes_text(static_cast<double>(sum.inter_node_bytes) / steps));
    row.push_back(fmt::format("{:.2f}", all > 0 ? 100 * static_cast<double>(sum.inter_node_bytes) / all : 0.0));
    row.push_back(fmt::format("{:.1f}", milliseconds / steps));
    table.push_back(row);
  }
  print_table(table);
}

void plan(const PlanOptions& options) {
  if (options.json == "-" && options.out == "-")
    throw InvalidInput("--json - and --out -: only one can be standard output");
  const RunInputs inputs = read_inputs(options);
  if (options.explain) return explain(options, inputs);
  const StepOptions step_options = options.step_options(inputs.cluster);
  const std::vector<std::uint32_t> home = home_ranks(options.ranks, options.batch);
  Sampler sampler(inputs.lengths.samples(), options.seed);

  Json summary = run_header("orchmllm.plan/1", options, inputs);
  summary["balance"] = options.balance;
  summary["placement"] = options.balance == "lpt" ? options.placement : "none";
  summary["steps"] = Json::array();
  Json full = summary;
  std::vector<PhaseRow> rows(inputs.model.encoders.size() + 1);
  const auto progress = progress_line("planning step");
  for (std::uint32_t step = 0; step < options.steps; ++step) {
    const StepPlan plan =
        plan_step(inputs.model, inputs.lengths, sampler.next(home.size()), home, options.ranks, step_options);
    Json entry{{"step", step}, {"plan_hash", hex(plan.fingerprint())}, {"phases", Json::array()}};
    for (std::size_t phase = 0; phase < plan.phases.size(); ++phase) {
      entry["phases"].push_back(phase_json(plan, phase, inputs.cluster.gpus_per_node));
      const Json& figures = entry["phases"].back();
      PhaseRow& row = rows[phase];
      row.before += figures["imbalance_before"].get<double>();
      row.after += figures["imbalance_after"].get<double>();
      row.gap += figures["gap"].get<double>();
      row.moved += figures["moved_bytes"].get<double>();
      row.inter_node += figures["inter_node_bytes"].get<double>();
      row.milliseconds += figures["solve_ms"].get<double>();
    }
    if (!options.out.empty()) {
      Json with_assignments = entry;
      with_assignments["samples"] = plan.samples;
      with_assignments["home_rank"] = plan.home_rank;
      for (std::size_t phase = 0; phase < plan.phases.size(); ++phase) {
        with_assignments["phases"][phase]["rank_of"] = plan.phases[phase].assignment.rank_of;
        with_assignments["phases"][phase]["rank_cost"] = plan.phases[phase].assignment.rank_cost;
      }
      full["steps"].push_back(std::move(with_assignments));
    }
    summary["steps"].push_back(std::move(entry));
    if (progress) progress(step + 1, options.steps);
  }

  if (!options.out.empty()) write_json(full, options.out);
  if (!options.json.empty()) write_json(summary, options.json);
  if (options.json == "-" || options.out == "-") return;
  fmt::print("{} on {} ranks x {} samples, {} step{}, {} ({} samples)\n\n", inputs.model.name, options.ranks,
             options.batch, options.steps, options.steps == 1 ? "" : "s", inputs.trace.name, inputs.trace.samples);
  std::vector<std::vector<std::string>> table{
      {"phase", "imbalance before", "after", "gap %", "moved/step", "inter-node/step", "solve ms"}};
  for (std::size_t phase = 0; phase < rows.size(); ++phase) {
    const double steps = options.steps;
    const PhaseRow& row = rows[phase];
    const bool llm = phase == inputs.model.encoders.size();
    table.push_back({llm ? "llm" : inputs.model.encoders[phase].phase, fmt::format("{:.3f}", row.before / steps),
                     fmt::format("{:.4f}", row.after / steps), fmt::format("{:.3f}", 100 * row.gap / steps),
                     bytes_text(row.moved / steps), bytes_text(row.inter_node / steps),
                     fmt::format("{:.2f}", row.milliseconds / steps)});
  }
  print_table(table);
}

}  // namespace

void add_plan_command(CLI::App& app) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand("plan", "Plan training steps: who processes which sample, and what moves");
  add_run_options(*command, *options);
  command
      ->add_option("--balance", options->balance,
                   "none: stay where sampled; lpt: flattest; movement: within --tolerance of the bound, moving little")
      ->check(CLI::IsMember({"none", "lpt", "movement"}))
      ->capture_default_str();
  command
      ->add_option(
          "--placement", options->placement,
          "With lpt, put batches on the nodes that hold their bytes: fewest bytes in total, or at the worst node")
      ->check(CLI::IsMember({"none", "total", "bottleneck"}))
      ->capture_default_str();
  command->add_option("--tolerance", options->tolerance, "With movement: largest cost over the lower bound")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_flag("--explain", options->explain, "Compare all balancers and placements on the same batches instead");
  command->add_option("--out", options->out, "Write whole plans, assignments included, as JSON; - is standard output")
      ->type_name("FILE");
  command->footer(
      "Examples:\n"
      "  orch plan --trace traces/omni-demo.jsonl.gz --model mllm-10b --cluster h100-8x400g --ranks 64 --batch 16\n"
      "  orch plan --trace my.jsonl --model my.toml --cluster h200-8x400g --ranks 512 --steps 10 --out plan.json");
  command->callback([options] { plan(*options); });
}

}  // namespace orch::apps
