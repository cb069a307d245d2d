// orch trace shuffle: a uniformly random order, for files of any size.
//
// Every sample gets a random 64-bit key; the output is sorted by key (ties by place). Samples are dealt into buckets by
// their key's upper part, in files beside the output, and one bucket at a time is sorted in memory, so the order does
// not depend on how much memory there is. Bucket files have no name (unlinked once open): nothing is left behind,
// whatever happens. Complexity: O(bytes) of reading and writing, twice; O(n log n) comparisons.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "commands.hpp"
#include "common.hpp"
#include "orchmllm/base/random.hpp"
#include "trace_files.hpp"
#include "trace_progress.hpp"

namespace orch::apps {

namespace {

constexpr std::uint64_t most_buckets = 512;

/// Keys and lines in a nameless file.
class Bucket {
 public:
  explicit Bucket(const std::string& beside) : path_(beside) {
    std::string name = beside + ".bucket-XXXXXX";
    const int descriptor = mkstemp(name.data());
    if (descriptor < 0) fail();
    unlink(name.c_str());
    file_.reset(fdopen(descriptor, "w+b"));
    if (!file_) {
      close(descriptor);
      fail();
    }
  }

  void add(std::uint64_t key, std::string_view line) {
    const std::uint64_t head[2] = {key, line.size()};
    if (std::fwrite(head, sizeof head, 1, file_.get()) != 1) fail();
    if (!line.empty() && std::fwrite(line.data(), line.size(), 1, file_.get()) != 1) fail();
    bytes_ += line.size();
    ++lines_;
  }

  /// Writes the lines in the order of their keys.
  void drain(io::TraceWriter& writer, SampleProgress& progress) {
    struct Line {
      std::uint64_t key;
      std::uint64_t begin;
      std::uint64_t size;
    };
    std::vector<Line> lines;
    std::string text(bytes_, '\0');
    lines.reserve(lines_);
    std::rewind(file_.get());
    std::uint64_t at = 0;
    for (std::uint64_t i = 0; i < lines_; ++i) {
      std::uint64_t head[2];
      if (std::fread(head, sizeof head, 1, file_.get()) != 1) fail();
      if (head[1] > 0 && std::fread(text.data() + at, head[1], 1, file_.get()) != 1) fail();
      lines.push_back({head[0], at, head[1]});
      at += head[1];
    }
    std::sort(lines.begin(), lines.end(),
              [](const Line& a, const Line& b) { return a.key != b.key ? a.key < b.key : a.begin < b.begin; });
    for (const Line& line : lines) {
      writer.write_line(std::string_view(text).substr(line.begin, line.size));
      progress.step();
    }
    file_.reset();
  }

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  [[noreturn]] void fail() const {
    throw Error(path_ + ": no room or no right for temporary files beside it: " + std::strerror(errno), 1);
  }

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::uint64_t bytes_ = 0;
  std::uint64_t lines_ = 0;
};

void shuffle(const std::string& in, const std::string& out, std::uint64_t seed, std::uint64_t memory) {
  require_distinct({in}, {out});
  const TraceSummary summary = summarise(in);
  constexpr std::uint64_t bytes_a_line = 48;  // beside its text
  const std::uint64_t needed = summary.bytes + bytes_a_line * summary.info.samples;
  // Three quarters: buckets differ in size, by chance and by long lines.
  const std::uint64_t buckets = 1 + needed / (memory - memory / 4);
  if (buckets > most_buckets) {
    throw InvalidInput(fmt::format("{}: {} MiB do not fit into {} buckets of the given memory, expected --memory {}",
                                   in, needed >> 20U, most_buckets, 1 + (needed / most_buckets * 4 / 3 >> 20U)));
  }
  io::TraceWriter writer(out,
                         derived_metadata(summary, fmt::format("shuffled with seed {}", seed), summary.info.samples));
  std::vector<Bucket> parts;
  for (std::uint64_t i = 0; i < buckets; ++i) parts.emplace_back(out);
  {
    io::TraceReader reader(in);
    SampleProgress progress("dealing out " + in, summary.info.samples);
    Random random(seed);
    while (reader.next()) {
      const std::uint64_t key = random.next();
      parts[(key >> 32U) * buckets >> 32U].add(key, reader.line());
      progress.step();
    }
  }
  SampleProgress progress("writing " + out, summary.info.samples);
  for (Bucket& part : parts) part.drain(writer, progress);
  writer.commit();
}

}  // namespace

void add_trace_shuffle_command(CLI::App& trace) {
  struct Options {
    std::string in, out;
    std::uint64_t seed = 1, memory = 256;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = trace.add_subcommand("shuffle", "A random order; files may be larger than memory");
  command->add_option("IN", options->in, "Trace file")->required();
  command->add_option("OUT", options->out, "Trace file to write; .gz and .zst compress")->required();
  command->add_option("--seed", options->seed, "Seed")->capture_default_str();
  command->add_option("--memory", options->memory, "Memory to use, in MiB; the order does not depend on it")
      ->check(CLI::Range(1ULL, 1ULL << 20U))
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  orch trace shuffle sorted.jsonl.gz shuffled.jsonl.gz\n"
      "  orch trace shuffle --seed 7 --memory 4096 crawl.jsonl.zst shuffled.jsonl.zst");
  command->callback([options] { shuffle(options->in, options->out, options->seed, options->memory << 20U); });
}

}  // namespace orch::apps
