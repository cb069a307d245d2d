#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "orchmllm/base/hash.hpp"

namespace orch::apps {

namespace {

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

/// Sum over all ranks and steps.
template <class Value>
auto total(const Run& run, Value&& value) {
  decltype(value(run.ranks[0][0])) result = 0;
  for (const std::vector<RankStep>& steps : run.ranks) {
    for (const RankStep& step : steps) result += value(step);
  }
  return result;
}

/// Until the slowest rank is done, mean over steps.
double step_seconds(const Run& run) {
  double seconds = 0;
  for (std::size_t step = 0; step < run.plans.size(); ++step) {
    double slowest = 0;
    for (const std::vector<RankStep>& steps : run.ranks) {
      slowest = std::max(slowest, steps[step].plan_wait_seconds + steps[step].report.seconds);
    }
    seconds += slowest;
  }
  return seconds / static_cast<double>(run.plans.size());
}

/// One phase, mean over steps. Without compute there is no imbalance to measure: 0.
struct PhaseFigures {
  double imbalance_before = 0;
  double imbalance = 0;
  double measured_imbalance = 0;
  double compute_seconds = 0;  ///< mean over ranks
  double wait_seconds = 0;     ///< mean over ranks
};

PhaseFigures phase_figures(const ExecuteOptions& options, const Run& run, std::size_t phase) {
  PhaseFigures figures;
  for (std::size_t step = 0; step < run.plans.size(); ++step) {
    figures.imbalance_before += run.plans[step].imbalance_before[phase];
    figures.imbalance += run.plans[step].imbalance[phase];
    double most = 0;
    double mean = 0;
    for (const std::vector<RankStep>& steps : run.ranks) {
      const double seconds = steps[step].report.compute_seconds[phase];
      most = std::max(most, seconds);
      mean += seconds / static_cast<double>(run.ranks.size());
      figures.wait_seconds += steps[step].report.wait_seconds[phase] / static_cast<double>(run.ranks.size());
    }
    figures.compute_seconds += mean;
    figures.measured_imbalance += options.compute_scale > 0 && mean > 0 ? most / mean : 0;
  }
  for (double* value : {&figures.imbalance_before, &figures.imbalance, &figures.measured_imbalance,
                        &figures.compute_seconds, &figures.wait_seconds}) {
    *value /= static_cast<double>(run.plans.size());
  }
  return figures;
}

/// Share of the phases' time in which ranks wait for slower ones; 0 without compute.
double straggler_idle(const ExecuteOptions& options, const Run& run) {
  if (options.compute_scale <= 0) return 0;
  const double waited = total(run, [](const RankStep& step) { return sum(step.report.wait_seconds); });
  const double computed = total(run, [](const RankStep& step) { return sum(step.report.compute_seconds); });
  return waited + computed > 0 ? waited / (waited + computed) : 0;
}

std::uint64_t run_hash(const Run& run) {
  Fingerprint print;
  for (const PlanFigures& plan : run.plans) print.add(plan.hash);
  return print.value();
}

std::uint64_t verified_bytes(const Run& run) {
  return total(run, [](const RankStep& step) { return step.report.verified_bytes; });
}

Json rank_json(std::uint32_t rank, const RankStep& step) {
  const runtime::StepReport& report = step.report;
  return {{"rank", rank},
          {"plan_seconds", step.plan_seconds},
          {"plan_wait_seconds", step.plan_wait_seconds},
          {"pack_seconds", report.exchange.pack_seconds},
          {"exchange_seconds", report.exchange.exchange_seconds},
          {"compute_seconds", sum(report.compute_seconds)},
          {"wait_seconds", sum(report.wait_seconds)},
          {"verify_seconds", report.verify_seconds},
          {"seconds", step.plan_wait_seconds + report.seconds},
          {"sent_bytes", report.exchange.sent_bytes},
          {"received_bytes", report.exchange.received_bytes},
          {"messages", report.exchange.messages}};
}

}  // namespace

std::uint64_t mismatches(const Run& run) {
  return total(run, [](const RankStep& step) { return step.report.mismatches; });
}

std::vector<std::string> mismatch_examples(const Run& run) {
  std::vector<std::string> examples;
  for (const std::vector<RankStep>& steps : run.ranks) {
    for (const RankStep& step : steps) {
      examples.insert(examples.end(), step.report.examples.begin(), step.report.examples.end());
    }
  }
  return examples;
}

Json report_json(const ExecuteOptions& options, const Run& run) {
  Json json = run_header("orchmllm.run/1", options, run.inputs);
  json["transport"] = options.transport;
  json["strategy"] = options.strategy;
  json["exchange"] = options.exchange;
  json["verify"] = options.verify;
  json["compute_scale"] = options.compute_scale;
  json["timeout_seconds"] = options.timeout_seconds;
  json["node_ranks"] = Json::array();
  for (std::uint32_t node = 0; node < run.topology.nodes(); ++node)
    json["node_ranks"].push_back(run.topology.size(node));
  json["plan_hash"] = hex(run_hash(run));
  json["verified_bytes"] = verified_bytes(run);
  json["mismatches"] = mismatches(run);
  json["mismatch_examples"] = mismatch_examples(run);
  json["step_seconds"] = step_seconds(run);
  json["straggler_idle_fraction"] = straggler_idle(options, run);
  json["phases"] = Json::array();
  for (std::size_t phase = 0; phase < run.phases.size(); ++phase) {
    const PhaseFigures figures = phase_figures(options, run, phase);
    json["phases"].push_back({{"phase", run.phases[phase]},
                              {"imbalance_before", figures.imbalance_before},
                              {"imbalance", figures.imbalance},
                              {"measured_imbalance", figures.measured_imbalance},
                              {"compute_seconds", figures.compute_seconds},
                              {"wait_seconds", figures.wait_seconds}});
  }
  json["steps"] = Json::array();
  for (std::size_t step = 0; step < run.plans.size(); ++step) {
    Json ranks = Json::array();
    for (std::uint32_t rank = 0; rank < run.ranks.size(); ++rank)
      ranks.push_back(rank_json(rank, run.ranks[rank][step]));
    json["steps"].push_back({{"step", step}, {"plan_hash", hex(run.plans[step].hash)}, {"ranks", std::move(ranks)}});
  }
  return json;
}

void print_report(const ExecuteOptions& options, const Run& run) {
  fmt::print("{} on {} ranks in {} node{}, {} samples a rank, {} step{}, {}, {} exchange, {} ({} samples)\n\n",
             run.inputs.model.name, run.ranks.size(), run.topology.nodes(), run.topology.nodes() == 1 ? "" : "s",
             options.batch, options.steps, options.steps == 1 ? "" : "s", options.strategy, options.exchange,
             run.inputs.trace.name, run.inputs.trace.samples);
  std::vector<std::vector<std::string>> rows{
      {"phase", "imbalance drawn", "planned", "measured", "compute ms", "waiting ms"}};
  for (std::size_t phase = 0; phase < run.phases.size(); ++phase) {
    const PhaseFigures f = phase_figures(options, run, phase);
    rows.push_back({run.phases[phase], fmt::format("{:.3f}", f.imbalance_before), fmt::format("{:.3f}", f.imbalance),
                    options.compute_scale > 0 ? fmt::format("{:.3f}", f.measured_imbalance) : "-",
                    fmt::format("{:.2f}", 1e3 * f.compute_seconds), fmt::format("{:.2f}", 1e3 * f.wait_seconds)});
  }
  print_table(rows);
  fmt::print("\n");
  const double rank_steps = static_cast<double>(run.ranks.size() * run.plans.size());
  const auto mean = [&](auto&& value) { return fmt::format("{:.2f}", 1e3 * total(run, value) / rank_steps); };
  using S = const RankStep&;
  print_table(
      {{"ms a step, mean of ranks", "plan", "wait for it", "pack", "exchange", "compute", "wait", "verify", "step"},
       {"", mean([](S s) { return s.plan_seconds; }), mean([](S s) { return s.plan_wait_seconds; }),
        mean([](S s) { return s.report.exchange.pack_seconds; }),
        mean([](S s) { return s.report.exchange.exchange_seconds; }),
        mean([](S s) { return sum(s.report.compute_seconds); }), mean([](S s) { return sum(s.report.wait_seconds); }),
        mean([](S s) { return s.report.verify_seconds; }), fmt::format("{:.2f}", 1e3 * step_seconds(run))}});
  const double sent = static_cast<double>(total(run, [](S s) { return s.report.exchange.sent_bytes; }));
  fmt::print("\nsent between ranks {} a step; verified {}, {} mismatches; plan hash {}\n",
             bytes_text(sent / static_cast<double>(run.plans.size())),
             bytes_text(static_cast<double>(verified_bytes(run))), mismatches(run), hex(run_hash(run)));
}

}  // namespace orch::apps
