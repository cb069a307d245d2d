#include "results.hpp"

#include "mode_names.hpp"

#include <fmt/format.h>

namespace orch::apps {

namespace {

Json memory_json(const sim::Memory& memory, const std::vector<std::string>& phases) {
  Json json = Json::object();
  for (const auto& [name, bytes] : memory.parts(phases)) json[name] = bytes;
  return json;
}

/// Seconds by cause; they add up to the step.
Json breakdown_json(const sim::Breakdown& breakdown, const std::vector<std::string>& phases) {
  Json json = Json::object();
  for (std::size_t p = 0; p < phases.size(); ++p) json["compute " + phases[p]] = breakdown.compute[p];
  for (const sim::BreakdownPart& part : sim::breakdown_parts) json[part.name] = breakdown.*part.seconds;
  return json;
}

Json parallelism_json(const sim::StrategyResult& result) {
  const sim::Parallelism& p = result.parallelism;
  return {{"tensor", p.tensor},
          {"context", p.context},
          {"pipeline", p.pipeline},
          {"virtual_stages", p.virtual_stages},
          {"micro_batches", p.micro_batches},
          {"micro_batch", result.micro_batch},
          {"data_parallel", name_in(data_parallel_names, p.data)},
          {"shard", p.shard},
          {"recompute", name_in(recompute_names, p.recompute)}};
}

std::vector<std::string> phase_names(const auto& phases) {
  std::vector<std::string> names;
  for (const auto& phase : phases) names.push_back(phase.phase);
  return names;
}

Json step_json(const sim::StepResult& step) {
  Json phases = Json::object();
  for (const sim::PhaseTimes& phase : step.phases) {
    phases[phase.phase] = {{"busy_seconds", phase.busy_seconds},
                           {"wall_seconds", phase.wall_seconds},
                           {"idle_fraction", phase.idle_fraction()}};
  }
  return {{"seconds", step.seconds},
          {"exchange_seconds", step.exchange_seconds},
          {"tokens", step.tokens},
          {"model_flops", step.model_flops},
          {"peak_memory_bytes", step.peak_memory.total()},
          {"events", step.events},
          {"phases", std::move(phases)},
          {"breakdown_seconds", breakdown_json(step.breakdown, phase_names(step.phases))}};
}

}  // namespace

Json strategy_json(const sim::StrategyResult& result) {
  Json imbalance = Json::object();
  Json gap = Json::object();
  Json idle = Json::object();
  for (const sim::PhaseSummary& phase : result.phases) {
    imbalance[phase.phase] = phase.imbalance;
    gap[phase.phase] = phase.gap;
    idle[phase.phase] = phase.idle_fraction;
  }
  Json steps = Json::array();
  for (const sim::StepResult& step : result.steps) steps.push_back(step_json(step));
  return {{"name", result.name},
          {"parallelism", parallelism_json(result)},
          {"mfu", result.mfu},
          {"hfu", result.hfu},
          {"step_seconds", result.step_seconds},
          {"step_seconds_p50", result.step_quantile(0.5)},
          {"step_seconds_p95", result.step_quantile(0.95)},
          {"step_seconds_max", result.step_quantile(1)},
          {"plan_seconds", result.plan_seconds},
          {"total_seconds", result.total_seconds},
          {"lost_seconds", result.lost_seconds},
          {"gpu_hours", result.gpu_hours},
          {"cost", result.cost},
          {"tokens_per_second_per_gpu", result.tokens_per_second_per_gpu},
          {"idle_fraction", result.idle_fraction},
          {"phase_idle_fraction", std::move(idle)},
          {"imbalance", std::move(imbalance)},
          {"gap", std::move(gap)},
          {"breakdown_seconds", breakdown_json(result.breakdown, result.phase_names())},
          {"exchange_seconds", result.exchange_seconds},
          {"inter_node_bytes", result.exchange_inter_node_bytes},
          {"intra_node_bytes", result.exchange_intra_node_bytes},
          {"input_inter_node_bytes", result.input_inter_node_bytes},
          {"input_intra_node_bytes", result.input_intra_node_bytes},
          {"peak_memory_bytes", result.peak_memory.total()},
          {"peak_memory", memory_json(result.peak_memory, result.phase_names())},
          {"peak_memory_rank", result.peak_rank},
          {"peak_memory_stage", result.peak_stage},
          {"peak_memory_step", result.peak_step},
          {"oom", result.oom},
          {"events", result.events},
          {"plan_hash", hex(result.plan_hash)},
          {"steps", std::move(steps)}};
}

void print_breakdown(const sim::StrategyResult& result) {
  std::vector<std::vector<std::string>> table{{"where the step goes", "s", "%"}};
  const Json parts = breakdown_json(result.breakdown, result.phase_names());
  for (const auto& part : parts.items()) {
    const auto seconds = part.value().get<double>();
    table.push_back(
        {part.key(), fmt::format("{:.3f}", seconds), fmt::format("{:.1f}", 100 * seconds / result.breakdown.total())});
  }
  print_table(table);
}

void print_totals(const sim::StrategyResult& result, const sim::Cluster& cluster) {
  fmt::print("step: median {:.3f} s, 95 % {:.3f} s, longest {:.3f} s; HFU {:.1f} %; planning {:.1f} ms a step\n",
             result.step_quantile(0.5), result.step_quantile(0.95), result.step_quantile(1), 100 * result.hfu,
             1e3 * result.plan_seconds);
  fmt::print("all steps: {:.1f} s, {:.2f} GPU-hours", result.total_seconds, result.gpu_hours);
  if (cluster.gpu_hour_cost > 0) fmt::print(", {:.2f} {}", result.cost, cluster.currency);
  if (result.lost_seconds > 0) fmt::print("; of that {:.1f} s lost with a node", result.lost_seconds);
  fmt::print("\n");
}

std::string steps_csv(const sim::StrategyResult& result) {
  const std::vector<std::string> phases = result.phase_names();
  std::string text = "step,seconds,tokens,model_flops,exchange_seconds,peak_memory_bytes,events";
  const Json header = breakdown_json(result.breakdown, phases);
  for (const auto& part : header.items()) text += "," + part.key();
  text += "\n";
  for (std::size_t s = 0; s < result.steps.size(); ++s) {
    const sim::StepResult& step = result.steps[s];
    text += fmt::format("{},{},{},{},{},{},{}", s, step.seconds, step.tokens, step.model_flops, step.exchange_seconds,
                        step.peak_memory.total(), step.events);
    const Json parts = breakdown_json(step.breakdown, phases);
    for (const auto& part : parts.items()) text += fmt::format(",{}", part.value().get<double>());
    text += "\n";
  }
  return text;
}

void print_strategies(const std::vector<sim::StrategyResult>& results, const sim::Cluster& cluster) {
  std::vector<std::string> head{"strategy", "MFU %", "step s", "tokens/s/GPU", "speed-up", "idle %"};
  for (const sim::PhaseSummary& phase : results.front().phases) head.push_back(phase.phase + " imb.");
  for (const char* name : {"exchange ms", "inter-node/step", "peak memory", "fits"}) head.emplace_back(name);
  std::vector<std::vector<std::string>> table{head};
  for (const sim::StrategyResult& result : results) {
    std::vector<std::string> row{result.name,
                                 fmt::format("{:.1f}", 100 * result.mfu),
                                 fmt::format("{:.3f}", result.step_seconds),
                                 fmt::format("{:.0f}", result.tokens_per_second_per_gpu),
                                 fmt::format("{:.2f}x", results.front().step_seconds / result.step_seconds),
                                 fmt::format("{:.1f}", 100 * result.idle_fraction)};
    for (const sim::PhaseSummary& phase : result.phases) row.push_back(fmt::format("{:.3f}", phase.imbalance));
    row.push_back(fmt::format("{:.2f}", 1e3 * result.exchange_seconds));
    row.push_back(bytes_text(result.exchange_inter_node_bytes));
    row.push_back(bytes_text(result.peak_memory.total()));
    row.emplace_back(result.oom ? "OOM" : "yes");
    table.push_back(row);
  }
  print_table(table);
  for (const sim::StrategyResult& result : results) {
    if (!result.oom) continue;
    const auto [part, bytes] = result.peak_memory.largest(result.phase_names());
    fmt::print("{}: out of memory on rank {} in step {}: {} of {}, most of it {} ({})\n", result.name, result.peak_rank,
               result.peak_step, bytes_text(result.peak_memory.total()), bytes_text(cluster.gpu.memory_bytes), part,
               bytes_text(bytes));
  }
}

}  // namespace orch::apps
