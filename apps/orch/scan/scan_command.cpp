#include "scan_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include "../common.hpp"
#include "../printable.hpp"
#include "orchmllm/base/error.hpp"
#include "orchmllm/version.hpp"
#ifndef ORCH_SCAN_LACKS
#include "scan.hpp"
#include "walk.hpp"
#endif

namespace orch::apps {

#ifdef ORCH_SCAN_LACKS

void add_scan_command(CLI::App& trace) {
  CLI::App* command = trace.add_subcommand("scan", "Record a trace from media files (not in this build)");
  command->allow_extras();
  command->callback([] {
    throw Error("trace scan: built without the libraries that it needs; install " ORCH_SCAN_LACKS " and build again",
                1);
  });
}

#else

namespace {

constexpr std::size_t most_shown = 20;

struct Options {
  std::vector<std::string> inputs;
  std::string list, out, report;
  scan::Settings settings;
  scan::TraceMetadata metadata;
};

Json report_json(const scan::ChunkResult& result, const std::string& out) {
  Json corrupt = Json::array();
  for (const scan::CorruptMember& one : result.corrupt) {
    corrupt.push_back({{"input", one.input}, {"member", one.member}, {"error", one.error}});
  }
  return {{"schema", "orchmllm.scan/1"},
          {"version", ORCHMLLM_VERSION},
          {"out", out},
          {"samples", result.samples},
          {"images", result.images},
          {"audio", result.audio},
          {"video", result.video},
          {"text_tokens", result.text_tokens},
          {"samples_left_out", result.left_out},
          {"estimated_durations", result.estimated},
          {"returning_keys", result.returning_keys},
          {"ignored", result.ignored},
          {"corrupt_members", result.corrupt_members},
          {"corrupt", corrupt}};
}

/// ".cls 12, .npy 3, without extension 1"
std::string ignored_text(const std::map<std::string, std::uint64_t>& ignored) {
  std::vector<std::string> parts;
  for (const auto& [extension, members] : ignored) {
    if (parts.size() == most_shown) {
      parts.push_back("…");
      break;
    }
    parts.push_back(fmt::format("{} {}", extension.empty() ? "without extension" : "." + extension, members));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

void print_result(const scan::ChunkResult& result, const std::string& out) {
  const auto say = [](std::uint64_t count, const std::string& what) {
    if (count > 0) tell(fmt::format("warning: {}: {}", what, count));
  };
  for (std::size_t i = 0; i < std::min(most_shown, result.corrupt.size()); ++i) {
    tell("corrupt: " + result.corrupt[i].text());
  }
  if (result.corrupt_members > most_shown) {
    tell(fmt::format("corrupt: and {} more; --report lists them", result.corrupt_members - most_shown));
  }
  say(result.left_out, "samples left out, since a member is corrupt");
  say(result.estimated, "durations estimated from the bit rate, since no header states them");
  say(result.returning_keys,
      "keys that come back later in their shard, each time as a sample of its own (pack with tar --sort=name)");
  if (!result.ignored.empty()) tell("ignored members: " + ignored_text(result.ignored));
  fmt::print("{}: {} samples: {} images, {} audio clips, {} videos, {} text tokens\n", printable(out), result.samples,
             result.images, result.audio, result.video, result.text_tokens);
}

void run(Options& options) {
  require_distinct({options.list}, {options.out, options.report});
  if (!options.list.empty()) {
    for (std::string& path : scan::read_list(options.list)) options.inputs.push_back(std::move(path));
  }
  if (options.inputs.empty()) throw InvalidInput("trace scan: no input, name a folder, shards or --files LIST");
  require_distinct(options.inputs, {options.out, options.report});
  const scan::ChunkResult result = scan::scan(options.inputs, options.settings, options.metadata, options.out);
  if (!options.report.empty()) write_json(report_json(result, options.out), options.report);
  if (options.report != "-") print_result(result, options.out);
}

}  // namespace

void add_scan_command(CLI::App& trace) {
  auto options = std::make_shared<Options>();
  options->settings.jobs = std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
  CLI::App* command = trace.add_subcommand("scan", "Record a trace from the headers of media files");
  command->add_option("IN", options->inputs, "Folders, WebDataset shards (.tar, .tar.gz, .tar.zst), files");
  command->add_option("--files", options->list, "Read more inputs from a file, a path a line")->type_name("LIST");
  command->add_option("--out", options->out, "Trace file to write; .gz compresses")->required()->type_name("OUT");
  command
      ->add_option("--tokens-per-word", options->settings.tokens_per_word,
                   "Text tokens a word of .txt and .json members; 0 leaves text out")
      ->check(CLI::Range(0.0, 1000.0))
      ->type_name("R");
  command->add_option("--task", options->settings.task, "Task of all samples")->type_name("NAME");
  command->add_option("--source", options->metadata.source, "Where the data come from, for the trace's first line");
  command->add_option("--license", options->metadata.license, "The data's license, for the trace's first line");
  command->add_option("--jobs", options->settings.jobs, "Threads")->check(CLI::Range(1U, 1024U))->capture_default_str();
  command->add_flag("--strict", options->settings.strict, "Fail at the first corrupt member, exit code 2, no output");
  command->add_flag("--follow-symlinks", options->settings.follow_symlinks, "Enter folders through symbolic links");
  command->add_option("--report", options->report, "Write counts and all corrupt members as JSON; - is standard output")
      ->type_name("FILE");
  command->footer(
      "Members with the same key (path up to the first dot in a shard, to the last in a folder) are one sample.\n"
      "A killed scan continues where it was: run the same command again.\n"
      "Examples:\n"
      "  orch trace scan shards/0*.tar --out my.jsonl.gz --tokens-per-word 1.3 --task caption\n"
      "  orch trace scan photos/ --out photos.jsonl --report photos.json");
  command->callback([options] { run(*options); });
}

#endif

}  // namespace orch::apps
