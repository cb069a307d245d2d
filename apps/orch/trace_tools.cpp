// orch trace head, sample, split, mix: parts and blends of traces. Two passes over every input: the first one checks
// and counts, the second one copies lines as they are. Memory does not grow with the files.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>

#include "commands.hpp"
#include "common.hpp"
#include "orchmllm/base/random.hpp"
#include "trace_files.hpp"
#include "trace_progress.hpp"

namespace orch::apps {

namespace {

void add_head(CLI::App& trace) {
  struct Options {
    std::string in, out;
    std::uint64_t samples = 10;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = trace.add_subcommand("head", "The first samples of a trace");
  command->add_option("IN", options->in, "Trace file")->required();
  command->add_option("OUT", options->out, "Trace file to write; standard output if absent");
  command->add_option("-n,--samples", options->samples, "Samples, at most")->capture_default_str();
  command->footer(
      "Examples:\n"
      "  orch trace head traces/omni-demo.jsonl.gz\n"
      "  orch trace head -n 1000 my.jsonl.zst small.jsonl");
  command->callback([options] {
    require_distinct({options->in}, {options->out});
    const TraceSummary summary = summarise(options->in, options->samples);
    const std::uint64_t samples = std::min(options->samples, summary.info.samples);
    const std::string metadata = derived_metadata(summary, fmt::format("its first {} samples", samples), samples);
    io::TraceReader reader(options->in);
    if (options->out.empty()) {
      fmt::print("{}", metadata);
      for (std::uint64_t i = 0; i < samples && reader.next(); ++i) fmt::print("{}\n", reader.line());
      return;
    }
    io::TraceWriter writer(options->out, metadata);
    for (std::uint64_t i = 0; i < samples && reader.next(); ++i) writer.write_line(reader.line());
    writer.commit();
  });
}

void add_sample(CLI::App& trace) {
  struct Options {
    std::string in, out;
    std::uint64_t samples = 0, seed = 1;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = trace.add_subcommand("sample", "Samples drawn at random, without repetition, in their order");
  command->add_option("IN", options->in, "Trace file")->required();
  command->add_option("OUT", options->out, "Trace file to write; .gz and .zst compress")->required();
  command->add_option("-n,--samples", options->samples, "Samples to draw")->required();
  command->add_option("--seed", options->seed, "Seed")->capture_default_str();
  command->footer(
      "Examples:\n"
      "  orch trace sample -n 10000 traces/omni-demo.jsonl.gz small.jsonl.gz\n"
      "  orch trace sample -n 1000000 --seed 7 crawl.jsonl.zst part.jsonl.zst");
  command->callback([options] {
    require_distinct({options->in}, {options->out});
    const TraceSummary summary = summarise(options->in);
    if (options->samples > summary.info.samples) {
      throw InvalidInput(fmt::format("{}: has {} samples, expected at least {} (--samples)", options->in,
                                     summary.info.samples, options->samples));
    }
    const std::string how = fmt::format("{} samples drawn with seed {}", options->samples, options->seed);
    io::TraceWriter writer(options->out, derived_metadata(summary, how, options->samples));
    io::TraceReader reader(options->in);
    SampleProgress progress("drawing from " + options->in, summary.info.samples);
    // Selection sampling (Knuth, The Art of Computer Programming, volume 2, algorithm S).
    Random random(options->seed);
    std::uint64_t left = summary.info.samples;
    std::uint64_t wanted = options->samples;
    for (; wanted > 0 && reader.next(); --left) {
      progress.step();
      if (random.below(left) >= wanted) continue;
      writer.write_line(reader.line());
      --wanted;
    }
    writer.commit();
  });
}

/// Whole numbers in proportion to weights, their sum exact: the largest remainders are rounded up.
std::vector<std::uint64_t> shares_of(std::uint64_t total, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::uint64_t> shares;
  std::vector<std::pair<double, std::size_t>> remainders;
  std::uint64_t given = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double exact = static_cast<double>(total) * (weights[i] / sum);
    shares.push_back(std::min(total - given, static_cast<std::uint64_t>(exact)));
    given += shares.back();
    remainders.emplace_back(static_cast<double>(shares.back()) - exact, i);
  }
  std::sort(remainders.begin(), remainders.end());
  for (std::size_t i = 0; given < total; ++given, ++i) ++shares[remainders[i % remainders.size()].second];
  return shares;
}

/// Takes one of `left`, each as likely as the other, and returns whose it was.
std::size_t draw_from(std::vector<std::uint64_t>& left, Random& random) {
  std::uint64_t at = random.below(std::accumulate(left.begin(), left.end(), std::uint64_t{0}));
  std::size_t whose = 0;
  while (at >= left[whose]) at -= left[whose++];
  --left[whose];
  return whose;
}

void check_weights(const std::vector<double>& weights, const char* option) {
  for (const double weight : weights) {
    if (!(weight > 0) || weight > 1e9) {
      throw InvalidInput(fmt::format("{} has {}, expected numbers above 0, at most 1e9", option, weight));
    }
  }
}

/// `pattern` with a number for {}, or the given names.
std::vector<std::string> part_names(const std::vector<std::string>& out, std::size_t parts) {
  std::vector<std::string> names = out;
  const std::size_t at = out.front().find("{}");
  if (out.size() == 1 && at != std::string::npos) {
    names.clear();
    for (std::size_t i = 0; i < parts; ++i) {
      names.push_back(out.front().substr(0, at) + std::to_string(i) + out.front().substr(at + 2));
    }
  }
  if (names.size() != parts) {
    throw InvalidInput(
        fmt::format("{} output files for {} parts; expected as many, or one name with {{}} for the "
                    "part's number",
                    out.size(), parts));
  }
  return names;
}

void add_split(CLI::App& trace) {
  struct Options {
    std::string in;
    std::vector<std::string> out;
    std::vector<double> fractions;
    std::uint64_t seed = 1;
    std::uint32_t parts = 0;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = trace.add_subcommand("split", "Deals the samples of a trace out at random, in their order");
  command->add_option("IN", options->in, "Trace file")->required();
  command->add_option("OUT", options->out, "A file for every part, or one name with {} for the part's number")
      ->required();
  auto* parts = command->add_option("--parts", options->parts, "Parts of equal size")->check(CLI::Range(1U, 256U));
  command->add_option("--fractions", options->fractions, "Sizes of the parts, in proportion: 0.9,0.1")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes(parts);
  command->add_option("--seed", options->seed, "Seed")->capture_default_str();
  command->footer(
      "Examples:\n"
      "  orch trace split my.jsonl.gz --fractions 0.9,0.1 train.jsonl.gz held-out.jsonl.gz\n"
      "  orch trace split my.jsonl.gz --parts 8 shard-{}.jsonl.zst");
  command->callback([options] {
    std::vector<double> weights = options->fractions;
    if (weights.empty()) weights.assign(options->parts, 1.0);
    if (weights.empty()) throw InvalidInput("--parts or --fractions is needed");
    if (weights.size() > 256) throw InvalidInput("--fractions has more than 256 entries");
    check_weights(weights, "--fractions");
    const std::vector<std::string> names = part_names(options->out, weights.size());
    require_distinct({options->in}, names);

    const TraceSummary summary = summarise(options->in);
    std::vector<std::uint64_t> left = shares_of(summary.info.samples, weights);
    std::vector<std::unique_ptr<io::TraceWriter>> writers;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string how = fmt::format("part {} of {}, seed {}", i, names.size(), options->seed);
      writers.push_back(std::make_unique<io::TraceWriter>(names[i], derived_metadata(summary, how, left[i])));
    }
    io::TraceReader reader(options->in);
    SampleProgress progress("splitting " + options->in, summary.info.samples);
    Random random(options->seed);
    while (reader.next()) {
      writers[draw_from(left, random)]->write_line(reader.line());
      progress.step();
    }
    for (auto& writer : writers) writer->commit();
  });
}

/// Which input the next sample comes from.
class MixOrder {
 public:
  MixOrder(std::vector<std::uint64_t> left, std::vector<double> weights, std::uint64_t seed)
      : left_(std::move(left)), random_(seed) {
    double sum = 0;
    for (const double weight : weights) until_.push_back(sum += weight);
  }

  /// Nothing at the end: all inputs are used up or, with weights, the one that was drawn.
  [[nodiscard]] std::optional<std::size_t> next() {
    if (until_.empty()) {
      if (std::all_of(left_.begin(), left_.end(), [](std::uint64_t n) { return n == 0; })) return std::nullopt;
      return draw_from(left_, random_);
    }
    const auto drawn = std::upper_bound(until_.begin(), until_.end() - 1, random_.uniform() * until_.back());
    const auto whose = static_cast<std::size_t>(drawn - until_.begin());
    if (left_[whose] == 0) return std::nullopt;
    --left_[whose];
    return whose;
  }

 private:
  std::vector<std::uint64_t> left_;
  std::vector<double> until_;
  Random random_;
};

void add_mix(CLI::App& trace) {
  struct Options {
    std::vector<std::string> in;
    std::vector<double> weights;
    std::string out, name = "mix";
    std::uint64_t seed = 1;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = trace.add_subcommand("mix", "A blend of traces; every input keeps its order");
  command->add_option("IN", options->in, "Trace files")->required();
  command->add_option("--out", options->out, "Trace file to write; .gz and .zst compress")->required();
  command
      ->add_option("--weights", options->weights,
                   "Shares of the inputs: 3,1. The blend ends where the next sample's input has ended. Without "
                   "weights all samples are used")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--name", options->name, "Name of the blend")->capture_default_str();
  command->add_option("--seed", options->seed, "Seed")->capture_default_str();
  command->footer(
      "Examples:\n"
      "  orch trace mix speech.jsonl.gz captions.jsonl.gz --out blend.jsonl.gz\n"
      "  orch trace mix speech.jsonl.gz captions.jsonl.gz --weights 3,1 --seed 7 --out blend.jsonl.gz");
  command->callback([options] {
    const std::vector<std::string>& in = options->in;
    if (in.size() > 256) throw InvalidInput("more than 256 inputs");
    if (!options->weights.empty() && options->weights.size() != in.size()) {
      throw InvalidInput(fmt::format("--weights has {} entries for {} inputs", options->weights.size(), in.size()));
    }
    check_weights(options->weights, "--weights");
    require_distinct(in, {options->out});
    std::vector<std::uint64_t> left;
    std::string parts;
    std::string license;
    bool inference = false;
    for (const std::string& path : in) {
      const TraceSummary summary = summarise(path);
      left.push_back(summary.info.samples);
      parts += (parts.empty() ? "" : ", ") + summary.info.name;
      if (license.find(summary.info.license) == std::string::npos || license.empty()) {
        license += (license.empty() ? "" : ", ") + summary.info.license;
      }
      inference = inference || summary.info.kind == "inference";
    }
    const MixOrder order(left, options->weights, options->seed);
    std::uint64_t samples = 0;
    for (MixOrder trial = order; trial.next();) ++samples;
    Json metadata{{"orchmllm_trace", 1}, {"name", options->name}};
    metadata["source"] = fmt::format("a blend of {}, seed {}", parts, options->seed);
    if (!options->weights.empty()) {
      metadata["source"] =
          fmt::format("a blend of {}, weights {}, seed {}", parts, fmt::join(options->weights, ", "), options->seed);
    }
    metadata["license"] = license;
    metadata["kind"] = inference ? "inference" : "training";
    metadata["samples"] = samples;

    io::TraceWriter writer(options->out, metadata.dump() + "\n");
    std::vector<std::unique_ptr<io::TraceReader>> readers;
    for (const std::string& path : in) readers.push_back(std::make_unique<io::TraceReader>(path));
    SampleProgress progress("mixing " + options->out, samples);
    MixOrder draws = order;
    while (const auto whose = draws.next()) {
      if (!readers[*whose]->next()) throw InvalidInput(in[*whose] + ": changed while it was read");
      writer.write_line(readers[*whose]->line());
      progress.step();
    }
    writer.commit();
  });
}

}  // namespace

void add_trace_tools_commands(CLI::App& trace) {
  add_head(trace);
  add_sample(trace);
  add_split(trace);
  add_mix(trace);
}

}  // namespace orch::apps
