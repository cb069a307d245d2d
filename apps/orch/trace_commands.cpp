// orch trace: read, check, generate and record traces.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "commands.hpp"
#include "common.hpp"
#include "orchmllm/cost/shape.hpp"
#include "orchmllm/sim/model_file.hpp"
#include "orchmllm/version.hpp"
#include "scan/scan_command.hpp"
#include "trace_generator.hpp"

namespace orch::apps {

namespace {

constexpr std::array<double, 6> shown_quantiles{0.0, 0.25, 0.5, 0.9, 0.99, 1.0};

/// A quantity's values over a trace.
struct Distribution {
  std::vector<double> values;
  [[nodiscard]] double quantile(double p) const {
    return values[static_cast<std::size_t>(p * static_cast<double>(values.size() - 1))];
  }
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  }
};

struct TraceStats {
  io::TraceInfo info;
  std::map<std::string, std::uint64_t> tasks;
  std::map<std::string, std::uint64_t> combinations;  ///< "text+vision" → samples
  std::map<std::string, Distribution> quantities;
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

TraceStats read_stats(const std::string& path, const std::string& model_name) {
  TraceStats stats;
  std::optional<Mllm> model;
  if (!model_name.empty()) model = sim::load_model(model_name);
  PhaseLengths lengths;
  stats.info = io::read_trace(path, [&](const Sample& sample) {
    ++stats.tasks[sample.task.empty() ? "(none)" : sample.task];
    ++stats.combinations[combination(sample)];
    stats.quantities["text tokens"].values.push_back(sample.text);
    for (const Image& image : sample.images) {
      stats.quantities["image pixels"].values.push_back(static_cast<double>(image.width) * image.height);
    }
    for (const AudioClip& clip : sample.audio) {
      stats.quantities["audio seconds"].values.push_back(static_cast<double>(clip.microseconds) * 1e-6);
    }
    for (const VideoClip& clip : sample.video) {
      if (clip.frames > 0) stats.quantities["video frames"].values.push_back(clip.frames);
      if (clip.microseconds > 0) {
        stats.quantities["video seconds"].values.push_back(static_cast<double>(clip.microseconds) * 1e-6);
      }
    }
    for (const CountedUnits& counted : sample.tokens) {
      for (const CountedUnit& unit : counted.units) {
        stats.quantities[counted.phase + " tokens (given)"].values.push_back(unit.encoder_length);
      }
    }
    if (model) append(lengths, *model, sample);
  });
  for (std::size_t e = 0; e < lengths.encoders.size(); ++e) {
    auto& values = stats.quantities[model->encoders[e].phase + " length (model)"].values;
    for (std::size_t sample = 0; sample < lengths.samples(); ++sample) {
      if (!lengths.encoders[e].units(sample).empty())
        values.push_back(static_cast<double>(lengths.encoders[e].tokens(sample)));
    }
  }
  if (model) {
    auto& values = stats.quantities["llm length (model)"].values;
    values.assign(lengths.llm_length.begin(), lengths.llm_length.end());
  }
  std::erase_if(stats.quantities, [](const auto& entry) { return entry.second.values.empty(); });
  for (auto& [name, distribution] : stats.quantities) std::sort(distribution.values.begin(), distribution.values.end());
  return stats;
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
            {"quantities", Json::object()}};
  for (const auto& [name, distribution] : stats.quantities) {
    Json& quantity = json["quantities"][name];
    quantity = {{"count", distribution.values.size()}, {"mean", distribution.mean()}, {"quantiles", Json::object()}};
    for (const double p : shown_quantiles) quantity["quantiles"][fmt::format("{}", p)] = distribution.quantile(p);
  }
  return json;
}

std::string share(std::uint64_t part, std::uint64_t whole) {
  return fmt::format("{:.1f}", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

void print_counts(const char* title, const std::map<std::string, std::uint64_t>& counts, std::uint64_t samples) {
  constexpr std::size_t most_rows = 20;
  std::vector<std::pair<std::string, std::uint64_t>> rows(counts.begin(), counts.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::vector<std::string>> table{{title, "samples", "%"}};
  for (std::size_t i = 0; i < std::min(rows.size(), most_rows); ++i) {
    table.push_back({rows[i].first, std::to_string(rows[i].second), share(rows[i].second, samples)});
  }
  print_table(table);
  if (rows.size() > most_rows) fmt::print("and {} more\n", rows.size() - most_rows);
  fmt::print("\n");
}

void print_stats(const TraceStats& stats) {
  fmt::print("{}: {} samples, hash {}\n", stats.info.name, stats.info.samples, hex(stats.info.hash));
  if (!stats.info.source.empty()) fmt::print("source: {} ({})\n", stats.info.source, stats.info.license);
  fmt::print("\n");
  if (stats.info.samples == 0) return;
  print_counts("task", stats.tasks, stats.info.samples);
  print_counts("modalities", stats.combinations, stats.info.samples);
  std::vector<std::vector<std::string>> table{{"quantity", "count", "mean", "min", "p25", "p50", "p90", "p99", "max"}};
  for (const auto& [name, distribution] : stats.quantities) {
    std::vector<std::string> row{name, std::to_string(distribution.values.size()),
                                 fmt::format("{:.1f}", distribution.mean())};
    for (const double p : shown_quantiles) row.push_back(fmt::format("{:.6g}", distribution.quantile(p)));
    table.push_back(row);
  }
  print_table(table);
}

void add_stats(CLI::App& trace) {
  struct Options {
    std::string file, model, json;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = trace.add_subcommand("stats", "What a trace holds: tasks, modalities, quantiles of all sizes");
  command->add_option("FILE", options->file, "Trace file")->required();
  command->add_option("--model", options->model, "Show phase lengths of this model too");
  command->add_option("--json", options->json, "Write the result as JSON; - is standard output")->type_name("FILE");
  command->footer(
      "Examples:\n"
      "  orch trace stats traces/omni-demo.jsonl.gz\n"
      "  orch trace stats my.jsonl.gz --model mllm-10b --json stats.json");
  command->callback([options] {
    const TraceStats stats = read_stats(options->file, options->model);
    warn_about(stats.info, options->file);
    if (!options->json.empty()) write_json(stats_json(stats), options->json);
    if (options->json != "-") print_stats(stats);
  });
}

void add_validate(CLI::App& trace) {
  struct Options {
    std::string file, model;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = trace.add_subcommand("validate", "Check every line of a trace; exit code 2 at the first bad one");
  command->add_option("FILE", options->file, "Trace file")->required();
  command->add_option("--model", options->model, "Check that this model can encode every sample");
  command->footer(
      "Examples:\n"
      "  orch trace validate traces/omni-demo.jsonl.gz\n"
      "  orch trace validate my.jsonl.zst --model mllm-84b");
  command->callback([options] {
    std::optional<Mllm> model;
    if (!options->model.empty()) model = sim::load_model(options->model);
    const io::TraceInfo info = io::read_trace(options->file, [&](const Sample& sample) {
      PhaseLengths one;
      if (model) append(one, *model, sample);
    });
    warn_about(info, options->file);
    fmt::print("{}: valid, {} samples, hash {}\n", options->file, info.samples, hex(info.hash));
  });
}

void add_generate(CLI::App& trace) {
  struct Options {
    std::string profile, out;
    std::uint64_t samples = 100000, seed = 1;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = trace.add_subcommand("generate", "Write a synthetic trace drawn from a profile");
  command->add_option("--profile", options->profile, "Profile (TOML, see docs/traces.md)")->required();
  command->add_option("--samples", options->samples, "Samples")
      ->check(CLI::Range(1ULL, 1ULL << 32U))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed")->capture_default_str();
  command->add_option("OUT", options->out, "Trace file to write; .gz compresses")->required();
  command->footer(
      "Examples:\n"
      "  orch trace generate --profile traces/profiles/omni-demo.toml --samples 200000 --seed 1 omni-demo.jsonl.gz\n"
      "  orch trace generate --profile my.toml --samples 1000 small.jsonl");
  command->callback(
      [options] { generate_trace(load_profile(options->profile), options->samples, options->seed, options->out); });
}

}  // namespace

void add_trace_commands(CLI::App& app) {
  CLI::App* trace = app.add_subcommand("trace", "Read, check, generate and record traces");
  need_subcommand(*trace);
  add_stats(*trace);
  add_validate(*trace);
  add_generate(*trace);
  add_scan_command(*trace);
  add_convert_command(*trace);
}

}  // namespace orch::apps
