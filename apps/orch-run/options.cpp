#include "options.hpp"

namespace orch::apps {

namespace {

void add_transport_options(CLI::App& app, TransportOptions& options) {
  app.add_option("--transport", options.transport, "What carries the bytes: mpi (host memory) or nccl (GPU memory)")
      ->check(CLI::IsMember({"mpi", "nccl"}))
      ->capture_default_str();
  app.add_option("--nccl-channels", options.nccl_channels,
                 "Most channels of NCCL, and with them its buffers for every peer; 0 = its choice")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app.add_option("--timeout", options.timeout_seconds, "Seconds without any progress after which a wait is given up")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  app.add_option("--spin", options.spin_milliseconds,
                 "Milliseconds that a wait without progress keeps the core before it sleeps between looks; 0 where "
                 "ranks share cores")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--ranks-per-node", options.ranks_per_node,
                 "Consecutive ranks that count as a node; 0 = the ranks of each host")
      ->check(CLI::Range(0U, 1U << 20U))
      ->capture_default_str();
}

}  // namespace

void add_execute_options(CLI::App& app, ExecuteOptions& options) {
  add_transport_options(app, options);
  app.add_option("--trace", options.trace, "Trace file (.jsonl, .jsonl.gz, .jsonl.zst); required");
  app.add_option("--model", options.model, "Model file, or the name of a shipped one; required");
  app.add_option(
      "--cluster", options.cluster,
      "Cluster file, or the name of a shipped one: rates for the prediction and for --exchange auto; required");
  app.add_option("--batch", options.batch, "Samples a rank and step")
      ->check(CLI::Range(1U, 1U << 20U))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Training steps")->check(CLI::Range(1U, 1U << 20U))->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the sampler and of the payload")->capture_default_str();
  app.add_option(
         "--strategy", options.strategies,
         "What is balanced: none, llm-only, lpt, orchmllm or movement; several, separated by commas, are run one "
         "after the other on the same batches and compared")
      ->delimiter(',')
      ->check(CLI::IsMember({"none", "llm-only", "lpt", "orchmllm", "movement"}))
      ->capture_default_str();
  app.add_option(
         "--exchange", options.exchange,
         "Every pair of ranks directly, node first (gather, one message per pair of nodes and rail, scatter), or "
         "per exchange whichever is estimated to end sooner")
      ->check(CLI::IsMember({"direct", "hierarchical", "auto"}))
      ->capture_default_str();
  app.add_option("--verify", options.verify,
                 "Check every element that arrives, the ends and the middle of every item, or nothing")
      ->check(CLI::IsMember({"full", "sample", "off"}))
      ->capture_default_str();
  app.add_option("--network", options.network,
                 "How predicted exchanges share links: endpoints (each rank's own links) or fluid (max-min fair)")
      ->check(CLI::IsMember({"endpoints", "fluid"}))
      ->capture_default_str();
  app.add_option("--compute-scale", options.compute_scale,
                 "Share of the model's operations that ranks run between exchanges; 0 = none")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--json", options.json, "Write the result as JSON; - is standard output")
      ->type_name("FILE")
      ->group(outputs_group);
  app.footer(
      "Exit codes: 0 done, 2 bad usage or input, or ranks that differ in it, 3 infeasible, 1 anything else: an "
      "element\n"
      "in the wrong place, a rank that is dead or stalls.\n"
      "Examples:\n"
      "  mpirun -np 8 orch-run --trace traces/omni-demo.jsonl.gz --model mllm-10b --cluster mpi-localhost --batch 2\n"
      "  mpirun -np 8 orch-run --trace my.jsonl.gz --model my.toml --cluster my-cluster.toml --strategy movement \\\n"
      "         --exchange hierarchical --ranks-per-node 4 --steps 10 --compute-scale 1e-6 --json run.json\n"
      "  mpirun -np 8 orch-run --trace my.jsonl.gz --model my.toml --cluster my-cluster.toml --strategy none,movement "
      "\\\n"
      "         --compute-scale 1e-6 --verify off\n"
      "  srun -n 64 --mpi=pmix orch-run --trace my.jsonl.gz --model my.toml --cluster my-cluster.toml --timeout 30");
}

CLI::App* add_calibrate_command(CLI::App& app, CalibrateOptions& options) {
  CLI::App* command = app.add_subcommand(
      "calibrate", "Measure links, memory and compute of the ranks, and write a cluster file with what was measured");
  command->add_option("--out", options.out, "Cluster file to write; - is standard output")
      ->type_name("FILE")
      ->required()
      ->group(outputs_group);
  add_transport_options(*command, options);
  command->add_option("--extends", options.extends,
                      "Cluster file, or the name of a shipped one, with all other values; default mpi-localhost, over "
                      "NCCL h100-8x400g");
  command
      ->add_option("--seconds", options.seconds,
                   "Time to measure in; exceeded only where three repetitions of every load and smallest message take "
                   "longer, or by what disturbs the last ones")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  command->footer(
      "Examples:\n  mpirun -np 16 --hostfile hosts orch-run calibrate --out my-cluster.toml\n"
      "  torchrun --nnodes 2 --nproc-per-node 8 --rdzv-endpoint node1:29400 --no-python \\\n"
      "           orch-run calibrate --transport nccl --out my-cluster.toml");
  return command;
}

void require_none_before(const CLI::App& app, const CLI::App& command) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    throw CLI::ExtrasError({option->get_name() + " (put options behind " + command.get_name() + ")"});
  }
}

void require_inputs(const ExecuteOptions& options) {
  if (options.trace.empty()) throw CLI::RequiredError("--trace");
  if (options.model.empty()) throw CLI::RequiredError("--model");
  if (options.cluster.empty()) throw CLI::RequiredError("--cluster");
}

}  // namespace orch::apps
