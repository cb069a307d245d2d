// What the subcommands share: options of a run, tables, JSON output, progress.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "orchmllm/io/trace.hpp"
#include "orchmllm/model/phase_lengths.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/simulate.hpp"

namespace orch::apps {

using Json = nlohmann::ordered_json;

/// Options of plan, simulate and compare.
struct RunOptions {
  std::string trace;
  std::string model;
  std::string cluster;
  std::uint32_t ranks = 8;
  std::uint32_t batch = 32;
  std::uint32_t steps = 1;
  std::uint64_t seed = 1;
  std::uint32_t max_text = 0;  ///< tokens; 0 = as the trace has it
  std::string json;
};

/// Options that name what is written are in this group.
inline constexpr const char* outputs_group = "Outputs";

void add_run_options(CLI::App& command, RunOptions& options);

/// Everything a run reads.
struct RunInputs {
  Mllm model;
  sim::Cluster cluster;
  io::TraceInfo trace;
  std::shared_ptr<const PhaseLengths> lengths;
};

/// Inputs of several runs: a model or cluster is read once, a trace once for every model, and runs share its lengths.
class InputStore {
 public:
  /// `warn`: on standard error about unknown keys and unexpected sample counts.
  explicit InputStore(bool warn = true) : warn_(warn) {}

  struct Trace {
    io::TraceInfo info;
    std::shared_ptr<const PhaseLengths> lengths;
  };

  const Mllm& model(const std::string& name);
  const sim::Cluster& cluster(const std::string& name);
  const Trace& trace(const std::string& path, const std::string& model, std::uint32_t max_text);
  /// Everything that a run reads, checked.
  [[nodiscard]] RunInputs get(const RunOptions& options);

 private:
  bool warn_;
  std::map<std::string, Mllm> models_;
  std::map<std::string, sim::Cluster> clusters_;
  std::map<std::tuple<std::string, std::string, std::uint32_t>, Trace> traces_;  ///< by path, model, longest text
};

/// The inputs of one run.
[[nodiscard]] RunInputs read_inputs(const RunOptions& options);
void warn_about(const io::TraceInfo& trace, const std::string& path);

/// "orch: TEXT" as a line on standard error. Control characters, which may come from an input, are escaped.
void tell(const std::string& text);

/// Schema, version, seed, trace and setting of a run: the head of every JSON that it writes.
[[nodiscard]] Json run_header(const std::string& schema, const RunOptions& options, const RunInputs& inputs);

/// Throws InvalidInput if an output would replace an input or another output. Empty names and "-" stand for no file,
/// "-" may be one output's.
void require_distinct(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs);

/// Writes to a file (whole or not at all), or to standard output for "-".
void write_text(const std::string& text, const std::string& path);
void write_json(const Json& json, const std::string& path);

/// Rows of text in aligned columns: the first column to the left, the others to the right. Control characters are
/// escaped.
void print_table(std::vector<std::vector<std::string>> rows);

/// 1234567890 → "1.15 GiB"
[[nodiscard]] std::string bytes_text(double bytes);

/// "label done/total" on a terminal that waits for more than two seconds; nothing elsewhere.
[[nodiscard]] sim::Progress progress_line(const std::string& label);

}  // namespace orch::apps
