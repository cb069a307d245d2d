// Traces: how fast lines are read and checked, beside nlohmann::json parsing of the same lines into a tree in the same
// run, and how fast a profile is drawn. One thread. Input: the shipped trace, decompressed, in the page cache.
//
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "orchmllm/io/line_reader.hpp"
#include "orchmllm/io/trace.hpp"
#include "profile.hpp"
#include "sample_generator.hpp"

namespace {

using namespace orch;

const std::string source = ORCHMLLM_SOURCE_DIR;

/// The shipped trace without compression, removed at the end.
struct PlainTrace {
  std::string path = (std::filesystem::temp_directory_path() / "orchmllm-bench-trace.jsonl").string();
  std::vector<std::string> lines;
  std::int64_t bytes = 0;

  PlainTrace() {
    io::LineReader reader(source + "/traces/omni-demo.jsonl.gz");
    std::ofstream out(path);
    while (const auto line = reader.next()) {
      lines.emplace_back(*line);
      out << *line << '\n';
      bytes += static_cast<std::int64_t>(line->size()) + 1;
    }
  }
  PlainTrace(const PlainTrace&) = delete;
  PlainTrace& operator=(const PlainTrace&) = delete;
  ~PlainTrace() { std::filesystem::remove(path); }
};

const PlainTrace& trace() {
  static const PlainTrace plain;
  return plain;
}

void count(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * trace().bytes);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(trace().lines.size()));
}

/// What every command does with a trace: lines, JSON, every check, sample, hash.
void read_trace(benchmark::State& state) {
  (void)trace();
  for (auto _ : state) {
    std::uint64_t text = 0;
    benchmark::DoNotOptimize(io::read_trace(trace().path, [&](const Sample& sample) { text += sample.text; }).hash);
    benchmark::DoNotOptimize(text);
  }
  count(state);
}

/// The general reader, which takes lines that are not plain: a blank that no program writes stands in front of each.
void read_trace_general(benchmark::State& state) {
  const std::string path = trace().path + ".tabs";
  std::ofstream out(path);
  for (const std::string& line : trace().lines) out << '\t' << line << '\n';
  out.close();
  for (auto _ : state) benchmark::DoNotOptimize(io::read_trace(path, [](const Sample&) {}).hash);
  std::filesystem::remove(path);
  count(state);
}

/// Lines alone, no JSON.
void read_lines(benchmark::State& state) {
  (void)trace();
  for (auto _ : state) {
    io::LineReader reader(trace().path);
    std::size_t bytes = 0;
    while (const auto line = reader.next()) bytes += line->size();
    benchmark::DoNotOptimize(bytes);
  }
  count(state);
}

/// Reference: the same lines, already in memory, parsed into a tree; no checks, no sample.
void reference_nlohmann_parse(benchmark::State& state) {
  (void)trace();
  for (auto _ : state) {
    for (const std::string& line : trace().lines) benchmark::DoNotOptimize(nlohmann::json::parse(line).size());
  }
  count(state);
}

/// Lines of the shipped blend, drawn and formatted in memory.
void generate(benchmark::State& state) {
  const apps::SampleGenerator generator(apps::load_task_profiles(source + "/traces/profiles/omni.toml"), 1);
  constexpr std::uint64_t samples = 100'000;
  std::string lines;
  std::int64_t bytes = 0;
  for (auto _ : state) {
    lines.clear();
    generator.append(0, samples, lines);
    bytes += static_cast<std::int64_t>(lines.size());
  }
  state.SetBytesProcessed(bytes);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(samples));
}

}  // namespace

BENCHMARK(read_trace)->Unit(benchmark::kMillisecond);
BENCHMARK(read_trace_general)->Unit(benchmark::kMillisecond);
BENCHMARK(read_lines)->Unit(benchmark::kMillisecond);
BENCHMARK(reference_nlohmann_parse)->Unit(benchmark::kMillisecond);
BENCHMARK(generate)->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();
