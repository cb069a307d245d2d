// orch trace stats: what a trace holds, in constant memory.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>

#include "commands.hpp"
#include "common.hpp"
#include "orchmllm/model/flops.hpp"
#include "orchmllm/sim/model_file.hpp"
#include "orchmllm/version.hpp"
#include "printable.hpp"
#include "trace_progress.hpp"
#include "value_sketch.hpp"

namespace orch::apps {

namespace {

constexpr std::array<double, 6> shown_quantiles{0.0, 0.25, 0.5, 0.9, 0.99, 1.0};
constexpr std::size_t most_tasks = 64;  // with quantiles of their own
const std::string no_task = "(none)";
const std::string other_tasks = "(other tasks)";

using Sketches = std::map<std::string, ValueSketch>;

struct TraceStats {
  io::TraceInfo info;
  std::map<std::string, std::uint64_t> tasks;
  std::map<std::string, std::uint64_t> combinations;  ///< "text+vision" → samples
  Sketches quantities;
  std::map<std::string, Sketches> of_task;
  std::vector<std::pair<std::string, ValueSketch>> cost_shares;  ///< phase → share of a sample's forward FLOPs
};

std::string combination(const Sample& sample) {
  bool vision = !sample.images.empty() || !sample.video.empty();
  bool audio = !sample.audio.empty();
  std::string others;
  for (const CountedUnits& counted : sample.tokens) {
    if (counted.units.empty()) continue;
    if (counted.phase == "vision") {
      vision = true;
    } else if (counted.phase == "audio") {
      audio = true;
    } else {
      others += "+" + counted.phase;
    }
  }
  std::string text =
      std::string(sample.text > 0 ? "+text" : "") + (vision ? "+vision" : "") + (audio ? "+audio" : "") + others;
  return text.empty() ? "empty" : text.substr(1);
}

void add_sizes(Sketches& sketches, const Sample& sample) {
  sketches["text tokens"].add(sample.text);
  if (sample.supervised) sketches["supervised tokens"].add(*sample.supervised);
  if (!sample.images.empty()) sketches["images a sample"].add(static_cast<double>(sample.images.size()));
  for (const Image& image : sample.images) {
    sketches["image pixels"].add(static_cast<double>(image.width) * image.height);
  }
  if (!sample.audio.empty()) sketches["clips a sample"].add(static_cast<double>(sample.audio.size()));
  for (const AudioClip& clip : sample.audio) {
    sketches["audio seconds"].add(static_cast<double>(clip.microseconds) * 1e-6);
  }
  if (!sample.video.empty()) sketches["videos a sample"].add(static_cast<double>(sample.video.size()));
  for (const VideoClip& clip : sample.video) {
    if (clip.frames > 0) sketches["video frames"].add(clip.frames);
    if (clip.microseconds > 0) sketches["video seconds"].add(static_cast<double>(clip.microseconds) * 1e-6);
  }
  for (const CountedUnits& counted : sample.tokens) {
    if (counted.units.empty()) continue;
    sketches[counted.phase + " units (given)"].add(static_cast<double>(counted.units.size()));
    ValueSketch& tokens = sketches[counted.phase + " tokens (given)"];
    for (const CountedUnit& unit : counted.units) tokens.add(unit.encoder_length);
  }
}

double encoder_flops(const Encoder& encoder, const EncoderLengths& lengths) {
  const auto tokens = static_cast<double>(lengths.tokens(0));
  double pairs = 0;
  for (const std::uint32_t length : lengths.units(0)) pairs += attention_pairs(length, attention_span(encoder.rule));
  return tokens *
             static_cast<double>(linear_flops_per_token(encoder.transformer) + front_end_flops_per_token(encoder)) +
         pairs * static_cast<double>(attention_flops_per_pair(encoder.transformer)) +
         static_cast<double>(lengths.llm_length[0]) * static_cast<double>(connector_flops_per_token(encoder.connector));
}

/// Lengths and cost shares of the phases.
void add_phases(TraceStats& stats, const Mllm& model, const Sample& sample) {
  PhaseLengths one;
  append(one, model, sample);
  std::vector<double> flops;
  for (std::size_t e = 0; e < model.encoders.size(); ++e) {
    flops.push_back(encoder_flops(model.encoders[e], one.encoders[e]));
    if (one.encoders[e].units(0).empty()) continue;
    stats.quantities[model.encoders[e].phase + " length (model)"].add(static_cast<double>(one.encoders[e].tokens(0)));
  }
  stats.quantities["llm length (model)"].add(one.llm_length[0]);
  flops.push_back(static_cast<double>(one.llm_length[0]) * static_cast<double>(linear_flops_per_token(model.llm)) +
                  attention_pairs(one.llm_length[0], 0) * static_cast<double>(attention_flops_per_pair(model.llm)));
  double all = 0;
  for (const double phase : flops) all += phase;
  if (all <= 0) return;
  for (std::size_t phase = 0; phase < flops.size(); ++phase) stats.cost_shares[phase].second.add(flops[phase] / all);
}

TraceStats read_stats(const std::string& path, const std::string& model_name) {
  TraceStats stats;
  std::optional<Mllm> model;
  if (!model_name.empty()) {
    model = sim::load_model(model_name);
    for (const Encoder& encoder : model->encoders) stats.cost_shares.push_back({encoder.phase, {}});
    stats.cost_shares.push_back({"llm", {}});
  }
  SampleProgress progress("reading " + path);
  stats.info = io::read_trace(path, [&](const Sample& sample) {
    progress.step();
    const std::string& task = sample.task.empty() ? no_task : sample.task;
    ++stats.tasks[task];
    ++stats.combinations[combination(sample)];
    add_sizes(stats.quantities, sample);
    const bool own = stats.of_task.size() < most_tasks || stats.of_task.contains(task);
    add_sizes(stats.of_task[own ? task : other_tasks], sample);
    if (model) add_phases(stats, *model, sample);
  });
  return stats;
}

Json quantities_json(const Sketches& sketches) {
  Json json = Json::object();
  for (const auto& [name, sketch] : sketches) {
    Json& quantity = json[name];
    quantity = {{"count", sketch.count()}, {"mean", sketch.mean()}, {"quantiles", Json::object()}};
    for (const double p : shown_quantiles) quantity["quantiles"][fmt::format("{}", p)] = sketch.quantile(p);
  }
  return json;
}

constexpr std::size_t share_bins = 10;

std::uint64_t in_share_bin(const ValueSketch& shares, std::size_t bin) {
  const double high = bin + 1 == share_bins ? 2.0 : static_cast<double>(bin + 1) / share_bins;
  return shares.between(static_cast<double>(bin) / share_bins, high);
}

Json stats_json(const TraceStats& stats) {
  Json json{{"schema", "orchmllm.trace-stats/1"},
            {"version", ORCHMLLM_VERSION},
            {"trace", {{"name", stats.info.name}, {"hash", hex(stats.info.hash)}, {"samples", stats.info.samples}}},
            {"kind", stats.info.kind},
            {"source", stats.info.source},
            {"license", stats.info.license},
            {"tasks", stats.tasks},
            {"combinations", stats.combinations},
            {"quantities", quantities_json(stats.quantities)},
            {"quantities_of_task", Json::object()}};
  for (const auto& [task, sketches] : stats.of_task) json["quantities_of_task"][task] = quantities_json(sketches);
  for (const auto& [phase, shares] : stats.cost_shares) {
    if (shares.count() == 0) continue;
    Json& share = json["cost_shares"][phase];
    share = quantities_json({{phase, shares}})[phase];
    for (std::size_t bin = 0; bin < share_bins; ++bin) share["histogram"].push_back(in_share_bin(shares, bin));
  }
  return json;
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  return fmt::format("{:.1f}", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

void print_counts(const char* title, const std::map<std::string, std::uint64_t>& counts, std::uint64_t samples) {
  constexpr std::size_t most_rows = 20;
  std::vector<std::pair<std::string, std::uint64_t>> rows(counts.begin(), counts.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::vector<std::string>> table{{title, "samples", "%"}};
  for (std::size_t i = 0; i < std::min(rows.size(), most_rows); ++i) {
    table.push_back({rows[i].first, std::to_string(rows[i].second), percent(rows[i].second, samples)});
  }
  print_table(table);
  if (rows.size() > most_rows) fmt::print("and {} more\n", rows.size() - most_rows);
  fmt::print("\n");
}

void print_quantities(const std::string& title, const Sketches& sketches) {
  std::vector<std::vector<std::string>> table{{title, "count", "mean", "min", "p25", "p50", "p90", "p99", "max"}};
  for (const auto& [name, sketch] : sketches) {
    std::vector<std::string> row{name, std::to_string(sketch.count()), fmt::format("{:.1f}", sketch.mean())};
    for (const double p : shown_quantiles) row.push_back(fmt::format("{:.6g}", sketch.quantile(p)));
    table.push_back(row);
  }
  print_table(table);
}

/// Bars in bins of equal ratio.
void print_histogram(const std::string& name, const ValueSketch& sketch) {
  constexpr int bins = 16;
  constexpr std::uint64_t widest = 50;
  const double low = std::max(sketch.min(), sketch.max() * 1e-6);
  const double ratio = std::pow(sketch.max() / low, 1.0 / bins);
  if (!(ratio > 1)) return;
  std::array<std::uint64_t, bins> counts{};
  std::array<double, bins + 1> edge{};
  for (int bin = 0; bin <= bins; ++bin) edge[static_cast<std::size_t>(bin)] = low * std::pow(ratio, bin);
  edge.front() = 0;
  edge.back() = 2 * sketch.max();
  for (std::size_t bin = 0; bin < bins; ++bin) counts[bin] = sketch.between(edge[bin], edge[bin + 1]);
  const std::uint64_t most = *std::max_element(counts.begin(), counts.end());
  fmt::print("\n{}\n", printable(name));
  for (std::size_t bin = 0; bin < bins; ++bin) {
    const std::string bar(static_cast<std::size_t>((counts[bin] * widest + most - 1) / most), '#');
    fmt::print("{:>10.4g} … {:<10.4g} {:>10} {}\n", bin == 0 ? sketch.min() : edge[bin],
               bin + 1 == bins ? sketch.max() : edge[bin + 1], counts[bin], bar);
  }
}

/// How differently a model's phases share the cost of single samples: what makes mini-batches incoherent.
void print_cost_shares(const TraceStats& stats, const std::string& model) {
  std::vector<std::vector<std::string>> table{{"share of a sample's cost in " + model, "mean", "p25", "p50", "p90",
                                               "p99", "0-10%", "-20%", "-30%", "-40%", "-50%", "-60%", "-70%", "-80%",
                                               "-90%", "-100%"}};
  for (const auto& [phase, shares] : stats.cost_shares) {
    if (shares.count() == 0) continue;
    std::vector<std::string> row{phase, fmt::format("{:.3f}", shares.mean())};
    for (const double p : {0.25, 0.5, 0.9, 0.99}) row.push_back(fmt::format("{:.3f}", shares.quantile(p)));
    for (std::size_t bin = 0; bin < share_bins; ++bin) {
      row.push_back(percent(in_share_bin(shares, bin), shares.count()));
    }
    table.push_back(row);
  }
  fmt::print("\n");
  print_table(table);
  fmt::print("(forward FLOPs; right: % of the samples whose share lies in a tenth)\n");
}

void print_stats(const TraceStats& stats, bool histograms, const std::string& model) {
  fmt::print("{}: {} samples, hash {}\n", printable(stats.info.name), stats.info.samples, hex(stats.info.hash));
  if (!stats.info.source.empty())
    fmt::print("source: {} ({})\n", printable(stats.info.source), printable(stats.info.license));
  fmt::print("\n");
  if (stats.info.samples == 0) return;
  print_counts("task", stats.tasks, stats.info.samples);
  print_counts("modalities", stats.combinations, stats.info.samples);
  print_quantities("quantity", stats.quantities);
  constexpr std::size_t most_tables = 20;
  if (stats.of_task.size() > 1 && stats.of_task.size() <= most_tables) {
    for (const auto& [task, sketches] : stats.of_task) {
      fmt::print("\n");
      print_quantities(task, sketches);
    }
  }
  if (!stats.cost_shares.empty()) print_cost_shares(stats, model);
  if (!histograms) return;
  for (const auto& [name, sketch] : stats.quantities) print_histogram(name, sketch);
}

}  // namespace

void add_trace_stats_command(CLI::App& trace) {
  struct Options {
    std::string file, model, json;
    bool histograms = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = trace.add_subcommand(
      "stats", "What a trace holds: tasks, modalities, quantiles of all sizes, shares of the cost");
  command->add_option("FILE", options->file, "Trace file")->required();
  command->add_option("--model", options->model, "Show phase lengths and cost shares of this model too");
  command->add_flag("--histogram", options->histograms, "Draw the distribution of every quantity");
  command->add_option("--json", options->json, "Write the result as JSON; - is standard output")->type_name("FILE");
  command->footer(
      "Examples:\n"
      "  orch trace stats traces/omni-demo.jsonl.gz --histogram\n"
      "  orch trace stats my.jsonl.gz --model mllm-10b --json stats.json");
  command->callback([options] {
    require_distinct({options->file, options->model}, {options->json});
    const TraceStats stats = read_stats(options->file, options->model);
    warn_about(stats.info, options->file);
    if (!options->json.empty()) write_json(stats_json(stats), options->json);
    if (options->json != "-") print_stats(stats, options->histograms, options->model);
  });
}

}  // namespace orch::apps
