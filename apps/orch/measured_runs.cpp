#include "measured_runs.hpp"

#include <fmt/format.h>

#include <charconv>

#include "importers/csv_reader.hpp"
#include "mode_names.hpp"
#include "orchmllm/sim/model_file.hpp"

namespace orch::apps {

namespace {

/// Fields of one record by the header's names.
class Row {
 public:
  Row(const std::map<std::string, std::size_t>& columns, const CsvReader<>& reader, const std::string& path)
      : columns_(columns), reader_(reader), path_(path) {}

  [[noreturn]] void fail(const std::string& message) const { throw InvalidInput::at(path_, reader_.line(), message); }

  [[nodiscard]] const std::string& text(const char* column) const {
    const auto found = columns_.find(column);
    if (found == columns_.end()) throw InvalidInput::at(path_, 1, fmt::format("no column {}", column));
    return reader_.fields()[found->second];
  }

  [[nodiscard]] std::optional<double> number(const char* column) const {
    const std::string& field = text(column);
    if (field.empty()) return {};
    double value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size() || !(value > 0)) {
      fail(fmt::format("{} is \"{}\", expected a positive number", column, field));
    }
    return value;
  }

  [[nodiscard]] std::uint64_t integer(const char* column, std::uint64_t high) const {
    const std::string& field = text(column);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size() || value < 1 || value > high) {
      fail(fmt::format("{} is \"{}\", expected an integer from 1 to {}", column, field, high));
    }
    return value;
  }
  [[nodiscard]] std::uint32_t integer32(const char* column) const {
    return static_cast<std::uint32_t>(integer(column, 1U << 24U));
  }

  /// One of the names, as the value beside it.
  template <class Value>
  [[nodiscard]] Value choice(const char* column, const std::map<std::string, Value>& choices) const {
    const std::string& field = text(column);
    std::string names;
    for (const auto& [name, value] : choices) {
      if (field == name) return value;
      names += (names.empty() ? "" : ", ") + name;
    }
    fail(fmt::format("{} is \"{}\", expected one of {}", column, field, names));
  }

 private:
  const std::map<std::string, std::size_t>& columns_;
  const CsvReader<>& reader_;
  const std::string& path_;
};

sim::Parallelism read_parallelism(const Row& row) {
  sim::Parallelism p;
  p.tensor = row.integer32("tp");
  p.pipeline = row.integer32("pp");
  p.context = row.integer32("cp");
  p.virtual_stages = row.integer32("virtual");
  std::map<std::string, sim::DataParallel> data_parallel = data_parallel_names;
  data_parallel.emplace("hsdp", sim::DataParallel::fsdp);  // with a shard group that is not everybody
  p.data = row.choice("data_parallel", data_parallel);
  if (!row.text("shard").empty()) {
    const std::uint32_t shard = row.integer32("shard");
    if (shard % p.context != 0) row.fail(fmt::format("shard {} is not a multiple of cp {}", shard, p.context));
    p.shard = shard / p.context;
  }
  p.recompute = row.choice("recompute", recompute_names);
  p.trainable =
      row.choice<sim::Trainable>("trainable", {{"full", sim::Trainable::full}, {"lora", sim::Trainable::adapters}});
  return p;
}

/// Sequences of a micro-batch.
std::uint64_t read_micro_batch(const Row& row) { return row.integer("micro_batch", 1U << 20U); }

/// Micro-batches of an instance and step.
std::uint32_t read_micro_batches(const Row& row, std::uint32_t gpus, const sim::Parallelism& p) {
  if (gpus % p.gpus() != 0) row.fail(fmt::format("gpus {} is not a multiple of tp · pp · cp = {}", gpus, p.gpus()));
  const std::uint64_t sequences = row.integer("global_batch", 1U << 30U);
  const std::uint64_t at_once = read_micro_batch(row) * (gpus / p.gpus());
  if (sequences % at_once != 0) {
    row.fail(fmt::format("global_batch {} is not a multiple of {} (micro_batch · gpus / (tp · pp · cp))", sequences,
                         at_once));
  }
  return static_cast<std::uint32_t>(sequences / at_once);
}

MeasuredRun read_run(const Row& row) {
  MeasuredRun run;
  run.id = row.text("id");
  run.calibrate = row.choice<bool>("use", {{"calibrate", true}, {"validate", false}});
  run.cluster = row.text("stack");
  run.precision = row.choice("precision", precision_names);
  run.model = row.text("model");
  run.gpus = row.integer32("gpus");
  run.parallelism = read_parallelism(row);
  const std::uint64_t length = row.integer("seq", 1U << 24U);
  const std::uint64_t attends = row.text("attention_length").empty() ? length : row.integer("attention_length", length);
  run.batch = {length, read_micro_batch(row), attends};
  run.parallelism.micro_batches = read_micro_batches(row, run.gpus, run.parallelism);
  run.compiled = row.choice<bool>("compile", {{"true", true}, {"false", false}});
  const auto tokens = row.number("tokens_per_second_per_gpu");
  if (!tokens) row.fail("tokens_per_second_per_gpu is empty");
  run.tokens_per_second_per_gpu = *tokens;
  run.memory_gib = row.number("memory_gib");
  run.architecture = sim::load_model(run.model);
  if (!run.architecture.encoders.empty()) row.fail(run.model + " has encoders: runs of text models only");
  if (!row.text("layers").empty()) run.architecture.llm.layers = row.integer("layers", 10000);
  return run;
}

MeasuredMemory read_memory_row(const Row& row) {
  MeasuredMemory m;
  m.id = row.text("id");
  m.model = row.text("model");
  m.gpus = row.integer32("gpus");
  m.parallelism.tensor = row.integer32("tp");
  m.parallelism.pipeline = row.integer32("pp");
  m.parallelism.virtual_stages = row.integer32("virtual");
  m.parallelism.data = sim::DataParallel::replicated;
  m.parallelism.recompute = row.choice("recompute", recompute_names);
  m.batch = {row.integer("seq", 1U << 24U), read_micro_batch(row), 0};
  m.parallelism.micro_batches = read_micro_batches(row, m.gpus, m.parallelism);
  m.sequence_parallel = row.choice<bool>("sequence_parallel", {{"true", true}, {"false", false}});
  const auto activation = row.number("activation_gib");
  const auto states = row.number("parameters_and_optimizer_gib");
  if (!activation || !states) row.fail("activation_gib and parameters_and_optimizer_gib must be given");
  m.activation_gib = *activation;
  m.state_gib = *states;
  return m;
}

/// What `read_row` makes of every record of a file with a header.
template <class Result>
std::vector<Result> read_table(const std::string& path, Result (*read_row)(const Row&)) {
  CsvReader reader(path);
  if (!reader.next()) throw InvalidInput(path + ": empty, expected a header and records");
  std::map<std::string, std::size_t> columns;
  for (std::size_t c = 0; c < reader.fields().size(); ++c) columns[reader.fields()[c]] = c;
  std::vector<Result> rows;
  while (reader.next()) rows.push_back(read_row(Row(columns, reader, path)));
  return rows;
}

constexpr double gib = 1024.0 * 1024.0 * 1024.0;

}  // namespace

std::vector<MeasuredRun> read_runs(const std::string& path) { return read_table<MeasuredRun>(path, read_run); }

std::vector<MeasuredMemory> read_memory(const std::string& path) {
  return read_table<MeasuredMemory>(path, read_memory_row);
}

SimulatedMemory simulate_memory(const MeasuredMemory& row) {
  sim::Cluster cluster = sim::load_cluster("megatron-a100");
  cluster.software.sequence_parallel = row.sequence_parallel;
  const sim::PlayedStep played =
      sim::play_uniform(sim::load_model(row.model), row.batch, row.gpus, cluster, row.parallelism);
  const sim::Memory& memory = played.result.peak_memory;
  return {memory.activations.back() / gib, (memory.parameters + memory.gradients + memory.optimizer) / gib};
}

SimulatedRun simulate_run(const MeasuredRun& run, const sim::Cluster& cluster) {
  sim::Cluster used = cluster;
  used.software.precision = run.precision;
  if (run.compiled) used.software.elementwise_traffic = used.software.compiled_elementwise_traffic;
  const sim::PlayedStep played = sim::play_uniform(run.architecture, run.batch, run.gpus, used, run.parallelism);
  const double seconds = played.result.seconds + used.software.step_overhead_seconds;
  return {played.result.tokens / seconds / run.gpus, played.result.peak_memory.total() / gib};
}

}  // namespace orch::apps
