#include "system_options.hpp"

#include <fmt/format.h>

#include <charconv>

#include "mode_names.hpp"

namespace orch::apps {

namespace {

const std::map<std::string, bool> sequences_names{{"packed", false}, {"padded", true}};

/// "3:1.25" → GPU 3 is 1.25 times as slow.
std::vector<sim::Slowdown> slowdowns(const char* option, const std::vector<std::string>& texts) {
  std::vector<sim::Slowdown> result;
  for (const std::string& text : texts) {
    sim::Slowdown slow;
    const char* end = text.data() + text.size();
    const auto gpu = std::from_chars(text.data(), end, slow.gpu);
    const bool colon = gpu.ec == std::errc() && gpu.ptr != end && *gpu.ptr == ':';
    const auto factor = std::from_chars(colon ? gpu.ptr + 1 : end, end, slow.factor);
    if (!colon || factor.ec != std::errc() || factor.ptr != end || !(slow.factor > 0 && slow.factor <= 1e6)) {
      throw InvalidInput(fmt::format("{} {}: expected GPU:FACTOR, e.g. 3:1.25", option, text));
    }
    result.push_back(slow);
  }
  return result;
}

}  // namespace

sim::Configuration SystemOptions::configuration() const {
  sim::Configuration c;
  c.gpus = ranks;
  c.batch = batch;
  c.steps = steps;
  c.seed = seed;
  c.parallelism = {tensor,        context, pipeline,  virtual_stages,      micro_batches,
                   data_parallel, shard,   recompute, sim::Trainable::full};
  c.micro_batch = micro_batch;
  c.padded = padded;
  c.network = network;
  c.plan_seconds = plan_seconds;
  c.measure_planning = measure_planning;
  c.overlap_planning = !expose_planning;
  c.slow_gpus = slowdowns("--slow-gpus", slow_gpus);
  c.slow_links = slowdowns("--slow-links", slow_links);
  c.jitter = jitter;
  if (lose_node) c.lost_node = sim::NodeLoss{*lose_node, checkpoint_every, restart_seconds};
  return c;
}

Json SystemOptions::settings() const {
  return {{"sequences", name_in(sequences_names, padded)},
          {"granularity", name_in(granularity_names, granularity)},
          {"network", name_in(network_names, network)},
          {"max_text", max_text}};
}

sim::Strategy SystemOptions::strategy_for_run(const std::string& name) const {
  sim::Strategy strategy = sim::strategy(name);
  strategy.options.encoders.granularity = granularity;
  return strategy;
}

sim::Cluster SystemOptions::cluster_for_run(const sim::Cluster& read) const {
  sim::Cluster result = read;
  if (!precision) return result;
  if (*precision == sim::Precision::fp8 && read.gpu.peak_flops_fp8 <= 0) {
    throw InvalidInput(fmt::format("--precision fp8: cluster {} has no peak_tflops_fp8", read.name));
  }
  result.software.precision = *precision;
  return result;
}

void add_system_options(CLI::App& command, SystemOptions& options) {
  const auto size = [&](const char* name, std::uint32_t& value, const char* help) {
    command.add_option(name, value, help)
        ->check(CLI::Range(1U, 1U << 20U))
        ->capture_default_str()
        ->group("Parallelism");
  };
  size("--tensor", options.tensor, "GPUs that share each layer (tensor parallel)");
  size("--context", options.context, "GPUs that share each sequence (context parallel)");
  size("--pipeline", options.pipeline, "Pipeline stages; encoders run on the first");
  size("--virtual-stages", options.virtual_stages, "Chunks of layers on each pipeline stage (interleaved schedule)");
  size("--micro-batches", options.micro_batches, "Micro-batches of the LLM phase, without a pipeline");
  size("--micro-batch", options.micro_batch, "Samples of a pipeline's micro-batch");
  command
      .add_option("--data-parallel", options.data_parallel,
                  "What instances share: fsdp (everything), distributed-optimizer, replicated (nothing)")
      ->transform(CLI::CheckedTransformer(data_parallel_names))
      ->default_str("fsdp")
      ->group("Parallelism");
  command
      .add_option("--shard", options.shard,
                  "Data-parallel instances that share the model's states (HSDP); 0 = all of them (FSDP)")
      ->capture_default_str()
      ->group("Parallelism");
  command
      .add_option("--recompute", options.recompute,
                  "Activations computed again in the backward pass: none, selective, alternate (layers), full")
      ->transform(CLI::CheckedTransformer(recompute_names))
      ->default_str("full")
      ->group("Parallelism");
  command.add_option("--precision", options.precision, "Of the layers' matrix products; default: the cluster file's")
      ->transform(CLI::CheckedTransformer(precision_names))
      ->group("Parallelism");

  command
      .add_option("--network", options.network,
                  "endpoints: NVLink and NIC of each GPU; fluid: max-min fair flows, leaf switches and spine included")
      ->transform(CLI::CheckedTransformer(network_names))
      ->default_str("endpoints");
  command
      .add_option("--granularity", options.granularity,
                  "What encoder phases move: whole samples, or single units (images, clips)")
      ->transform(CLI::CheckedTransformer(granularity_names))
      ->default_str("sample");

  command
      .add_option("--sequences", options.padded,
                  "The LLM's sequences of a micro-batch: packed one after the other, or padded to the longest")
      ->transform(CLI::CheckedTransformer(sequences_names))
      ->default_str("packed");

  const char* planning = "Planning and disturbances";
  command.add_option("--plan-seconds", options.plan_seconds, "Planning time of a step; default: the cluster file's")
      ->check(CLI::Range(0.0, 1e6))
      ->group(planning);
  command
      .add_flag("--measure-planning", options.measure_planning,
                "Take what planning takes on this machine (results then differ from run to run)")
      ->group(planning);
  command.add_flag("--expose-planning", options.expose_planning, "Plan before each step, not beside the one before")
      ->group(planning);
  command.add_option("--slow-gpus", options.slow_gpus, "GPU:FACTOR,…: these GPUs compute so many times slower")
      ->delimiter(',')
      ->group(planning);
  command.add_option("--slow-links", options.slow_links, "GPU:FACTOR,…: the links of these GPUs are so much slower")
      ->delimiter(',')
      ->group(planning);
  command.add_option("--jitter", options.jitter, "Standard deviation of the logarithm of every pass's time")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str()
      ->group(planning);
  command.add_option("--lose-node", options.lose_node, "A node is lost in this step (from 0)")->group(planning);
  command.add_option("--checkpoint-every", options.checkpoint_every, "Steps between checkpoints, for --lose-node")
      ->check(CLI::Range(1U, 1U << 20U))
      ->capture_default_str()
      ->group(planning);
  command.add_option("--restart-seconds", options.restart_seconds, "From the loss of a node to the next step")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str()
      ->group(planning);
}

}  // namespace orch::apps
