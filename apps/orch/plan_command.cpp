// orch plan: step plans for a trace, with their quality, traffic and planning time.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "commands.hpp"
#include "common.hpp"
#include "orchmllm/io/plan.hpp"
#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/orchestrate/sampler.hpp"
#include "plan_files.hpp"
#include "plan_report.hpp"
#include "printable.hpp"

namespace orch::apps {

namespace {

struct PlanOptions : RunOptions {
  PlanMode mode;
  double tolerance = 0.01;
  std::string out;
  std::uint32_t rank = 0;
  bool one_rank = false;
  std::string traffic_matrix;
  bool explain = false;
};

void require_outputs_apart(const PlanOptions& options) {
  require_distinct({options.trace, options.model, options.cluster},
                   {options.json, options.out, options.traffic_matrix});
  if (options.explain && (!options.out.empty() || !options.traffic_matrix.empty()))
    throw InvalidInput("--explain compares modes: leave out --out and --traffic-matrix");
  if (options.one_rank && options.out.empty())
    throw InvalidInput("--rank says what --out holds: name a file with --out");
  if (options.one_rank && options.rank >= options.ranks) {
    throw InvalidInput(fmt::format("--rank {}: there are {} ranks", options.rank, options.ranks));
  }
}

void plan(const PlanOptions& options) {
  require_outputs_apart(options);
  const RunInputs inputs = read_inputs(options);
  const PlanRun run{inputs, options, options.mode, options.tolerance};
  if (options.explain) {
    Json all = run_header("orchmllm.plan_modes/1", options, inputs);
    all["steps"] = options.steps;
    all["modes"] = compare_modes(run);
    if (!options.json.empty()) write_json(all, options.json);
    if (options.json != "-") print_modes(all["modes"]);
    return;
  }

  Json summary = run_header("orchmllm.plan/2", options, inputs);
  for (const auto& [key, value] : options.mode.named()) summary[key] = value;
  Json whole = summary;
  whole["schema"] = "orchmllm.plans/1";
  summary["steps"] = Json::array();
  whole["steps"] = Json::array();
  std::uint64_t largest_total = 0;
  const auto progress = progress_line("planning step");
  run.each_step([&](std::uint32_t step, const StepPlan& plan) {
    summary["steps"].push_back(step_json(step, plan, inputs.cluster));
    if (!options.out.empty()) {
      whole["steps"].push_back(options.one_rank ? io::to_json(rank_view(plan, options.rank)) : io::to_json(plan));
    }
    if (step == 0 && !options.traffic_matrix.empty()) {
      largest_total = write_traffic_matrix(plan, options.traffic_matrix);
    }
    if (progress) progress(step + 1, options.steps);
  });

  if (!options.out.empty()) write_document(whole, options.out);
  if (!options.json.empty()) write_json(summary, options.json);
  if (options.json == "-" || options.out == "-" || options.traffic_matrix == "-") return;
  fmt::print("{} on {} ranks x {} samples, {} step{}, {} ({} samples)\n\n", printable(inputs.model.name), options.ranks,
             options.batch, options.steps, options.steps == 1 ? "" : "s", printable(inputs.trace.name),
             inputs.trace.samples);
  print_steps(summary["steps"]);
  if (!options.traffic_matrix.empty()) print_traffic_hint(options.traffic_matrix, largest_total);
}

}  // namespace

void add_plan_command(CLI::App& app) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand("plan", "Plan training steps: who processes which sample, and what moves");
  add_run_options(*command, *options);
  command
      ->add_option("--balance", options->mode.balance,
                   "none: stay where drawn; lpt: flat; auto: as flat as can be; movement: within --tolerance of the "
                   "bound, moving little")
      ->check(CLI::IsMember({"none", "lpt", "auto", "movement"}))
      ->capture_default_str();
  command
      ->add_option("--granularity", options->mode.granularity,
                   "What encoders distribute: whole samples, or single images and clips")
      ->check(CLI::IsMember({"sample", "unit"}))
      ->capture_default_str();
  command
      ->add_option(
          "--placement", options->mode.placement,
          "With lpt and auto, put batches on the nodes that hold their bytes: by integer program (lp_solve), by "
          "flow, or by what suits the size")
      ->check(CLI::IsMember({"none", "ilp", "flow", "auto"}))
      ->capture_default_str();
  command
      ->add_option("--objective", options->mode.objective,
                   "What placement minimises: bytes between nodes in total, or at the worst node")
      ->check(CLI::IsMember({"total", "bottleneck"}))
      ->capture_default_str();
  command
      ->add_option(
          "--exchange", options->mode.exchange,
          "Every pair of ranks directly, node first (gather, one message per pair of nodes and rail, scatter), "
          "or per exchange whichever is estimated to end sooner")
      ->check(CLI::IsMember({"direct", "hierarchical", "auto"}))
      ->capture_default_str();
  command->add_option("--tolerance", options->tolerance, "With movement: largest cost over the lower bound")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_flag("--explain", options->explain,
                    "Compare all balancers, granularities, placements and schedules on the same batches instead");
  command
      ->add_option("--out", options->out,
                   "Write whole plans: JSON, or CBOR where the name ends in .cbor; - is standard output")
      ->type_name("FILE");
  command->add_option_function<std::uint32_t>(
      "--rank",
      [options](std::uint32_t rank) {
        options->rank = rank;
        options->one_rank = true;
      },
      "With --out: write what this rank needs, not the whole plan");
  command
      ->add_option("--traffic-matrix", options->traffic_matrix,
                   "Write the first step's rank x rank bytes, as nccl-tests' alltoallv_perf reads them")
      ->type_name("FILE");
  command->footer(
      "Examples:\n"
      "  orch plan --trace traces/omni-demo.jsonl.gz --model mllm-10b --cluster h100-8x400g --ranks 64 --batch 16\n"
      "  orch plan --trace my.jsonl --model my.toml --cluster h200-8x400g --ranks 512 --steps 10 --out plan.cbor\n"
      "  orch plan --trace my.jsonl --model my.toml --cluster h200-8x400g --ranks 512 --explain\n"
      "  orch plan --trace my.jsonl --model my.toml --cluster h200-8x400g --ranks 16 --traffic-matrix bytes.txt");
  command->callback([options] { plan(*options); });
}

}  // namespace orch::apps
