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

std::string milliseconds(double seconds) { return fmt::format("{:.2f}", 1e3 * seconds); }

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

/// Mean over steps and ranks, in seconds a step.
struct Times {
  double exchange = 0;
  double compute = 0;
  double wait = 0;
};

Times measured_times(const Run& run) {
  const double count = static_cast<double>(run.ranks.size() * run.plans.size());
  return {total(run, [](const RankStep& step) { return step.report.exchange.exchange_seconds; }) / count,
          total(run, [](const RankStep& step) { return sum(step.report.compute_seconds); }) / count,
          total(run, [](const RankStep& step) { return sum(step.report.wait_seconds); }) / count};
}

/// Of one step. A phase's ranks wait for the slowest one.
Times predicted_times(const PlanFigures& plan) {
  Times times;
  for (const ExchangeFigures& exchange : plan.exchanges) times.exchange += exchange.predicted_seconds;
  const double ranks = static_cast<double>(plan.predicted_compute.size());
  for (std::size_t phase = 0; phase < plan.imbalance.size(); ++phase) {
    double most = 0;
    double mean = 0;
    for (const std::vector<double>& rank : plan.predicted_compute) {
      most = std::max(most, rank[phase]);
      mean += rank[phase] / ranks;
    }
    times.compute += mean;
    times.wait += most - mean;
  }
  return times;
}

Times predicted_times(const Run& run) {
  Times mean;
  for (const PlanFigures& plan : run.plans) {
    const Times times = predicted_times(plan);
    mean.exchange += times.exchange / static_cast<double>(run.plans.size());
    mean.compute += times.compute / static_cast<double>(run.plans.size());
    mean.wait += times.wait / static_cast<double>(run.plans.size());
  }
  return mean;
}

Json times_json(const Times& times) {
  return {{"exchange_seconds", times.exchange}, {"compute_seconds", times.compute}, {"wait_seconds", times.wait}};
}

/// Until the last byte, mean over ranks: all end together, and begin when they have packed.
double measured_seconds(const Run& run, std::size_t step, const ExchangeFigures& exchange) {
  double sum = 0;
  for (const std::vector<RankStep>& steps : run.ranks) {
    sum += steps[step].report.route_seconds[exchange.route][static_cast<std::size_t>(exchange.direction)];
  }
  return sum / static_cast<double>(run.ranks.size());
}

Json exchange_json(const Run& run, std::size_t step, const ExchangeFigures& exchange) {
  return {{"from", exchange.from},
          {"to", exchange.to},
          {"direction", exchange.direction == runtime::Direction::forward ? "forward" : "backward"},
          {"schedule", exchange.hierarchical ? "hierarchical" : "direct"},
          {"moved_bytes", exchange.moved_bytes},
          {"inter_node_bytes", exchange.inter_node_bytes},
          {"measured_seconds", measured_seconds(run, step, exchange)},
          {"predicted_seconds", exchange.predicted_seconds}};
}

/// By exchange and direction, mean over steps.
struct ExchangeRow {
  ExchangeFigures figures;
  double moved_bytes = 0;
  double inter_node_bytes = 0;
  double measured = 0;
  double predicted = 0;
};

std::vector<ExchangeRow> exchange_rows(const Run& run) {
  std::vector<ExchangeRow> rows;
  const double steps = static_cast<double>(run.plans.size());
  for (std::size_t step = 0; step < run.plans.size(); ++step) {
    const std::vector<ExchangeFigures>& exchanges = run.plans[step].exchanges;
    for (std::size_t e = 0; e < exchanges.size(); ++e) {
      if (step == 0) rows.push_back({exchanges[e]});
      rows[e].moved_bytes += static_cast<double>(exchanges[e].moved_bytes) / steps;
      rows[e].inter_node_bytes += static_cast<double>(exchanges[e].inter_node_bytes) / steps;
      rows[e].measured += measured_seconds(run, step, exchanges[e]) / steps;
      rows[e].predicted += exchanges[e].predicted_seconds / steps;
    }
  }
  return rows;
}

Json rank_json(std::uint32_t rank, const RankStep& step, const std::vector<double>& predicted_compute) {
  const runtime::StepReport& report = step.report;
  return {{"rank", rank},
          {"plan_seconds", step.plan_seconds},
          {"plan_wait_seconds", step.plan_wait_seconds},
          {"pack_seconds", report.exchange.pack_seconds},
          {"exchange_seconds", report.exchange.exchange_seconds},
          {"compute_seconds", sum(report.compute_seconds)},
          {"predicted_compute_seconds", sum(predicted_compute)},
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

namespace {

Json run_json(const ExecuteOptions& options, const Run& run) {
  Json json = run_header("orchmllm.run/1", options, run.inputs);
  json["transport"] = options.transport;
  json["strategy"] = run.strategy;
  json["exchange"] = options.exchange;
  json["verify"] = options.verify;
  json["network"] = options.network;
  json["compute_scale"] = options.compute_scale;
  json["timeout_seconds"] = options.timeout_seconds;
  if (!run.devices.empty()) json["devices"] = run.devices;
  json["node_ranks"] = Json::array();
  for (std::uint32_t node = 0; node < run.topology.nodes(); ++node)
    json["node_ranks"].push_back(run.topology.size(node));
  json["plan_hash"] = hex(run_hash(run));
  json["verified_bytes"] = verified_bytes(run);
  json["mismatches"] = mismatches(run);
  json["mismatch_examples"] = mismatch_examples(run);
  json["step_seconds"] = step_seconds(run);
  json["straggler_idle_fraction"] = straggler_idle(options, run);
  json["measured"] = times_json(measured_times(run));
  json["predicted"] = times_json(predicted_times(run));
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
    const PlanFigures& plan = run.plans[step];
    Json exchanges = Json::array();
    for (const ExchangeFigures& exchange : plan.exchanges) exchanges.push_back(exchange_json(run, step, exchange));
    Json ranks = Json::array();
    for (std::uint32_t rank = 0; rank < run.ranks.size(); ++rank) {
      ranks.push_back(rank_json(rank, run.ranks[rank][step], plan.predicted_compute[rank]));
    }
    json["steps"].push_back({{"step", step},
                             {"plan_hash", hex(plan.hash)},
                             {"predicted", times_json(predicted_times(plan))},
                             {"exchanges", std::move(exchanges)},
                             {"ranks", std::move(ranks)}});
  }
  return json;
}

void print_run(const ExecuteOptions& options, const Run& run) {
  fmt::print("{} on {} ranks in {} node{}, {} samples a rank, {} step{}, {}, {} exchange, {} ({} samples)\n\n",
             run.inputs.model.name, run.ranks.size(), run.topology.nodes(), run.topology.nodes() == 1 ? "" : "s",
             options.batch, options.steps, options.steps == 1 ? "" : "s", run.strategy, options.exchange,
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
  const auto mean = [&](auto&& value) { return milliseconds(total(run, value) / rank_steps); };
  const Times predicted = predicted_times(run);
  using S = const RankStep&;
  print_table(
      {{"ms a step, mean of ranks", "plan", "wait for it", "pack", "exchange", "compute", "wait", "verify", "step"},
       {"measured", mean([](S s) { return s.plan_seconds; }), mean([](S s) { return s.plan_wait_seconds; }),
        mean([](S s) { return s.report.exchange.pack_seconds; }),
        mean([](S s) { return s.report.exchange.exchange_seconds; }),
        mean([](S s) { return sum(s.report.compute_seconds); }), mean([](S s) { return sum(s.report.wait_seconds); }),
        mean([](S s) { return s.report.verify_seconds; }), milliseconds(step_seconds(run))},
       {"predicted", "", "", "", milliseconds(predicted.exchange),
        options.compute_scale > 0 ? milliseconds(predicted.compute) : "-",
        options.compute_scale > 0 ? milliseconds(predicted.wait) : "-", "", ""}});
  fmt::print("\n");
  std::vector<std::vector<std::string>> table{{"exchange, a step", "schedule", "moved", "between nodes", "measured ms",
                                               "predicted ms", "measured / predicted"}};
  for (const ExchangeRow& row : exchange_rows(run)) {
    if (row.moved_bytes == 0) continue;
    table.push_back({row.figures.from + " -> " + row.figures.to, row.figures.hierarchical ? "node first" : "direct",
                     bytes_text(row.moved_bytes), bytes_text(row.inter_node_bytes), milliseconds(row.measured),
                     milliseconds(row.predicted),
                     row.predicted > 0 ? fmt::format("{:.2f}", row.measured / row.predicted) : "-"});
  }
  if (table.size() > 1) print_table(table);
  const double sent = static_cast<double>(total(run, [](S s) { return s.report.exchange.sent_bytes; }));
  fmt::print("\nsent between ranks {} a step; verified {}, {} mismatches; plan hash {}\n",
             bytes_text(sent / static_cast<double>(run.plans.size())),
             bytes_text(static_cast<double>(verified_bytes(run))), mismatches(run), hex(run_hash(run)));
}

/// Runs side by side.
void print_comparison(const ExecuteOptions& options, const std::vector<Run>& runs) {
  std::vector<std::vector<std::string>> rows{{"strategy", "step ms", "exchange ms", "predicted", "compute ms",
                                              "waiting ms", "straggler idle %", "sent a step"}};
  const std::vector<std::string>& phases = runs[0].phases;
  for (const std::string& phase : phases) rows[0].push_back(phase + " imb.");
  const bool computes = options.compute_scale > 0;
  for (const Run& run : runs) {
    const Times measured = measured_times(run);
    const double sent = static_cast<double>(total(run, [](const RankStep& s) { return s.report.exchange.sent_bytes; }));
    rows.push_back({run.strategy, milliseconds(step_seconds(run)), milliseconds(measured.exchange),
                    milliseconds(predicted_times(run).exchange), milliseconds(measured.compute),
                    milliseconds(measured.wait),
                    computes ? fmt::format("{:.1f}", 100 * straggler_idle(options, run)) : "-",
                    bytes_text(sent / static_cast<double>(run.plans.size()))});
    for (std::size_t phase = 0; phase < phases.size(); ++phase) {
      const PhaseFigures f = phase_figures(options, run, phase);
      rows.back().push_back(fmt::format("{:.3f}", computes ? f.measured_imbalance : f.imbalance));
    }
  }
  fmt::print("\n");
  print_table(rows);
}

}  // namespace

Json report_json(const ExecuteOptions& options, const std::vector<Run>& runs) {
  if (runs.size() == 1) return run_json(options, runs[0]);
  Json json = run_header("orchmllm.runs/1", options, runs[0].inputs);
  json["runs"] = Json::array();
  for (const Run& run : runs) json["runs"].push_back(run_json(options, run));
  return json;
}

void print_report(const ExecuteOptions& options, const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    if (&run != &runs[0]) fmt::print("\n");
    print_run(options, run);
  }
  if (runs.size() > 1) print_comparison(options, runs);
}

}  // namespace orch::apps
