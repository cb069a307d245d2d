#include "common.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "orchmllm/io/atomic_file.hpp"
#include "orchmllm/sim/model_file.hpp"
#include "orchmllm/version.hpp"
#include "printable.hpp"

namespace orch::apps {

void add_run_options(CLI::App& command, RunOptions& options) {
  command.add_option("--trace", options.trace, "Trace file (.jsonl, .jsonl.gz, .jsonl.zst)")->required();
  command.add_option("--model", options.model, "Model file, or the name of a shipped one")->required();
  command.add_option("--cluster", options.cluster, "Cluster file, or the name of a shipped one")->required();
  command.add_option("--gpus,--ranks", options.ranks, "GPUs; a rank each, unless several share a model instance")
      ->check(CLI::Range(1U, 1U << 20U))
      ->capture_default_str();
  command.add_option("--batch", options.batch, "Samples a GPU and step")
      ->check(CLI::Range(1U, 1U << 20U))
      ->capture_default_str();
  command.add_option("--steps", options.steps, "Training steps")
      ->check(CLI::Range(1U, 1U << 20U))
      ->capture_default_str();
  command.add_option("--seed", options.seed, "Seed of the sampler")->capture_default_str();
  command
      .add_option(
          "--max-text", options.max_text,
          "Cut longer texts to so many tokens, as trainers do with what exceeds their context window; 0 = never")
      ->capture_default_str();
  command.add_option("--json", options.json, "Write the result as JSON; - is standard output")
      ->type_name("FILE")
      ->group(outputs_group);
}

namespace {

Sample with_text_cut(Sample sample, std::uint32_t tokens) {
  sample.text = std::min(sample.text, tokens);
  if (sample.supervised) sample.supervised = std::min(*sample.supervised, sample.text);
  return sample;
}

}  // namespace

const Mllm& InputStore::model(const std::string& name) {
  const auto known = models_.find(name);
  return known != models_.end() ? known->second : models_.emplace(name, sim::load_model(name)).first->second;
}

const sim::Cluster& InputStore::cluster(const std::string& name) {
  const auto known = clusters_.find(name);
  return known != clusters_.end() ? known->second : clusters_.emplace(name, sim::load_cluster(name)).first->second;
}

const InputStore::Trace& InputStore::trace(const std::string& path, const std::string& model_name,
                                           std::uint32_t max_text) {
  const std::tuple key(path, model_name, max_text);
  if (const auto found = traces_.find(key); found != traces_.end()) return found->second;
  const auto known = traces_.lower_bound({path, "", 0});
  const bool new_path = known == traces_.end() || std::get<0>(known->first) != path;
  const Mllm& for_model = model(model_name);
  auto lengths = std::make_shared<PhaseLengths>();
  Trace read;
  read.info = io::read_trace(path, [&](const Sample& sample) {
    append(*lengths, for_model, max_text == 0 ? sample : with_text_cut(sample, max_text));
  });
  if (warn_ && new_path) warn_about(read.info, path);
  if (read.info.samples == 0) throw InvalidInput(path + ": the trace has no samples");
  lengths->encoders.resize(for_model.encoders.size());
  read.lengths = std::move(lengths);
  return traces_.emplace(key, std::move(read)).first->second;
}

RunInputs InputStore::get(const RunOptions& options) {
  constexpr std::uint64_t most_samples = 1ULL << 28U;
  if (std::uint64_t{options.ranks} * options.batch > most_samples) {
    throw InvalidInput(fmt::format("--ranks {} times --batch {} is more than {} samples a step", options.ranks,
                                   options.batch, most_samples));
  }
  RunInputs inputs{model(options.model), cluster(options.cluster), {}, {}};
  const Trace& read = trace(options.trace, options.model, options.max_text);
  inputs.trace = read.info;
  inputs.lengths = read.lengths;
  return inputs;
}

RunInputs read_inputs(const RunOptions& options) { return InputStore().get(options); }

void warn_about(const io::TraceInfo& trace, const std::string& path) {
  for (const auto& [key, lines] : trace.unknown_keys) {
    tell(fmt::format("warning: {}: unknown key \"{}\" ignored ({} lines)", path, key, lines));
  }
  if (trace.samples_stated.value_or(trace.samples) != trace.samples) {
    tell(fmt::format("warning: {}: {} samples, but the metadata says {}", path, trace.samples, *trace.samples_stated));
  }
}

void tell(const std::string& text) { std::cerr << "orch: " + printable(text) + "\n"; }

Json run_header(const std::string& schema, const RunOptions& options, const RunInputs& inputs) {
  return {{"schema", schema},
          {"version", ORCHMLLM_VERSION},
          {"seed", options.seed},
          {"trace", {{"name", inputs.trace.name}, {"hash", hex(inputs.trace.hash)}, {"samples", inputs.trace.samples}}},
          {"model", inputs.model.name},
          {"cluster", inputs.cluster.name},
          {"ranks", options.ranks},
          {"batch", options.batch}};
}

void require_distinct(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
  const auto same = [](const std::string& a, const std::string& b) {
    if (a == b || a == "-" || b == "-") return a == b;
    std::error_code ignored;
    return std::filesystem::equivalent(a, b, ignored) ||
           std::filesystem::weakly_canonical(a, ignored) == std::filesystem::weakly_canonical(b, ignored);
  };
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o].empty()) continue;
    for (const std::string& input : inputs) {
      if (outputs[o] != "-" && same(outputs[o], input)) throw InvalidInput(outputs[o] + ": is both read and written");
    }
    for (std::size_t other = 0; other < o; ++other) {
      if (same(outputs[o], outputs[other]))
        throw InvalidInput(outputs[o] + ": two outputs cannot go to the same place");
    }
  }
}

void write_json(const Json& json, const std::string& path) { write_text(json.dump(1) + "\n", path); }

void write_text(const std::string& text, const std::string& path) {
  if (path == "-") {
    std::cout << text << std::flush;
    if (!std::cout) throw Error("standard output: cannot be written", 1);
    return;
  }
  io::AtomicFile file(path);
  file.write(text);
  file.commit();
}

void print_table(std::vector<std::vector<std::string>> rows) {
  for (auto& row : rows) {
    for (std::string& cell : row) cell = printable(cell);
  }
  std::vector<std::size_t> width;
  for (const auto& row : rows) {
    width.resize(std::max(width.size(), row.size()), 0);
    for (std::size_t column = 0; column < row.size(); ++column)
      width[column] = std::max(width[column], row[column].size());
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (std::size_t column = 0; column < rows[r].size(); ++column) {
      line += column == 0 ? fmt::format("{:<{}}", rows[r][column], width[column])
                          : fmt::format("  {:>{}}", rows[r][column], width[column]);
    }
    fmt::print("{}\n", line);
    if (r == 0) fmt::print("{}\n", std::string(line.size(), '-'));
  }
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 6> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.{}f} {}", bytes, bytes < 10 ? 2 : 1, units[unit]);
}

sim::Progress progress_line(const std::string& label) {
  if (isatty(STDERR_FILENO) == 0) return {};
  const auto begin = std::chrono::steady_clock::now();
  return [=](std::uint32_t done, std::uint32_t total) {
    if (std::chrono::steady_clock::now() - begin < std::chrono::seconds(2)) return;
    std::cerr << fmt::format("\r{} {}/{}{}", label, done, total, done == total ? "\r\x1b[K" : "") << std::flush;
  };
}

}  // namespace orch::apps
