#include "results.hpp"

#include <fmt/format.h>

namespace orch::apps {

namespace {

Json memory_json(const sim::Memory& memory) {
  return {{"states", memory.states},           {"gathered", memory.gathered}, {"checkpoints", memory.checkpoints},
          {"working_set", memory.working_set}, {"logits", memory.logits},     {"exchange", memory.exchange},
          {"reserved", memory.reserved}};
}

/// Seconds by cause; they add up to the step.
Json breakdown_json(const sim::Breakdown& breakdown, const std::vector<std::string>& phases) {
  Json json = Json::object();
  for (std::size_t p = 0; p < phases.size(); ++p) json["compute " + phases[p]] = breakdown.compute[p];
  json["optimizer"] = breakdown.optimizer;
  json["exposed exchange"] = breakdown.exposed_exchange;
  json["exposed collectives"] = breakdown.exposed_collectives;
  json["waiting"] = breakdown.waiting;
  return json;
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
          {"mfu", result.mfu},
          {"step_seconds", result.step_seconds},
          {"tokens_per_second_per_gpu", result.tokens_per_second_per_gpu},
          {"idle_fraction", result.idle_fraction},
          {"phase_idle_fraction", std::move(idle)},
          {"imbalance", std::move(imbalance)},
          {"gap", std::move(gap)},
          {"breakdown_seconds", breakdown_json(result.breakdown, phase_names(result.phases))},
          {"exchange_seconds", result.exchange_seconds},
          {"inter_node_bytes", result.exchange_inter_node_bytes},
          {"intra_node_bytes", result.exchange_intra_node_bytes},
          {"input_inter_node_bytes", result.input_inter_node_bytes},
          {"input_intra_node_bytes", result.input_intra_node_bytes},
          {"peak_memory_bytes", result.peak_memory.total()},
          {"peak_memory", memory_json(result.peak_memory)},
          {"peak_memory_rank", result.peak_rank},
          {"peak_memory_step", result.peak_step},
          {"oom", result.oom},
          {"plan_hash", hex(result.plan_hash)},
          {"steps", std::move(steps)}};
}

void print_breakdown(const sim::StrategyResult& result) {
  std::vector<std::vector<std::string>> table{{"where the step goes", "s", "%"}};
  const Json parts = breakdown_json(result.breakdown, phase_names(result.phases));
  for (const auto& part : parts.items()) {
    const auto seconds = part.value().get<double>();
    table.push_back(
        {part.key(), fmt::format("{:.3f}", seconds), fmt::format("{:.1f}", 100 * seconds / result.breakdown.total())});
  }
  print_table(table);
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
    const auto [part, bytes] = result.peak_memory.largest();
    fmt::print("{}: out of memory on rank {} in step {}: {} of {}, most of it {} ({})\n", result.name, result.peak_rank,
               result.peak_step, bytes_text(result.peak_memory.total()), bytes_text(cluster.memory_bytes), part,
               bytes_text(bytes));
  }
}

}  // namespace orch::apps
