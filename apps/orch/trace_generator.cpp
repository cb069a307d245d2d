#include "trace_generator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "orchmllm/base/error.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/io/atomic_file.hpp"
#include "toml_reader.hpp"

namespace orch::apps {

double QuantileTable::at(double u) const {
  const auto right = std::upper_bound(probability.begin() + 1, probability.end() - 1, u);
  const auto i = static_cast<std::size_t>(right - probability.begin());
  const double share = (u - probability[i - 1]) / (probability[i] - probability[i - 1]);
  return value[i - 1] + share * (value[i] - value[i - 1]);
}

namespace {

using sim::TomlSection;

QuantileTable read_table(TomlSection& parent, const char* key, double low, double high) {
  TomlSection section = parent.section(key);
  QuantileTable table{section.numbers("p"), section.numbers("value")};
  section.done();
  if (table.probability.size() < 2 || table.probability.front() != 0 || table.probability.back() != 1) {
    section.fail("p", "must go from 0 to 1");
  }
  if (table.probability.size() != table.value.size()) section.fail("value", "must have as many entries as p");
  for (std::size_t i = 0; i < table.value.size(); ++i) {
    if (i > 0 && table.probability[i] <= table.probability[i - 1]) section.fail("p", "must ascend");
    if (i > 0 && table.value[i] < table.value[i - 1]) section.fail("value", "must not descend");
    if (table.value[i] < low || table.value[i] > high)
      section.fail("value", fmt::format("must lie from {} to {}", low, high));
  }
  return table;
}

constexpr double most_units = 4096;
constexpr double most_tokens = 1 << 24;
constexpr double most_pixels = 1 << 28;

TaskProfile read_task(TomlSection section) {
  TaskProfile task;
  task.name = section.text("name");
  task.weight = section.number("weight", 0, 1e9);
  (void)section.text("source");  // every profile says where its figures come from
  task.text = read_table(section, "text", 0, most_tokens);
  if (section.has("images")) {
    TomlSection part = section.section("images");
    task.images = {read_table(part, "count", 0, most_units), read_table(part, "pixels", 1, most_pixels),
                   read_table(part, "aspect", 1e-3, 1e3), part.number("text_coupling", 0, 1, 0.0)};
    part.done();
  }
  if (section.has("audio")) {
    TomlSection part = section.section("audio");
    task.audio = {read_table(part, "count", 0, most_units), read_table(part, "seconds", 1e-3, 1e6),
                  part.number("text_coupling", 0, 1, 0.0)};
    part.done();
  }
  if (section.has("video")) {
    TomlSection part = section.section("video");
    task.video = {read_table(part, "count", 0, most_units), read_table(part, "frames", 1, 1e6),
                  part.integer32("width", 1, 1U << 20U), part.integer32("height", 1, 1U << 20U)};
    part.done();
  }
  if (section.has("vision_tokens")) {
    TomlSection part = section.section("vision_tokens");
    task.vision_tokens = {read_table(part, "count", 0, most_units), read_table(part, "encoder", 0, most_tokens),
                          part.integer32("merge", 1, 1024), part.number("text_coupling", 0, 1, 0.0)};
    part.done();
  }
  section.done();
  return task;
}

std::uint64_t draw_count(const QuantileTable& table, Random& random) {
  return static_cast<std::uint64_t>(std::nearbyint(table.at(random.uniform())));
}

/// One sample as a line of JSON.
class SampleWriter {
 public:
  SampleWriter(const TaskProfile& task, std::string& out) : task_(task), out_(out) {}

  void write(std::uint64_t index, Random& random) {
    fmt::format_to(std::back_inserter(out_), R"({{"id":"s{}","task":{},)", index, nlohmann::json(task_.name).dump());
    // The first unit's draw may decide the text's.
    std::optional<double> coupled;
    double coupling = 0;
    std::string units;
    const auto list = [&](const char* key, std::uint64_t count, const auto& unit) {
      if (count == 0) return;
      units += fmt::format(R"(,"{}":[)", key);
      for (std::uint64_t i = 0; i < count; ++i) {
        const double u = random.uniform();
        if (!coupled) coupled = u;
        units += (i == 0 ? "" : ",") + unit(u);
      }
      units += "]";
    };
    if (task_.images) {
      coupling = std::max(coupling, task_.images->text_coupling);
      list("images", draw_count(task_.images->count, random), [&](double u) {
        const double pixels = task_.images->pixels.at(u);
        const double aspect = task_.images->aspect.at(random.uniform());
        return fmt::format("[{},{}]", side(std::sqrt(pixels * aspect)), side(std::sqrt(pixels / aspect)));
      });
    }
    if (task_.audio) {
      coupling = std::max(coupling, task_.audio->text_coupling);
      list("audio", draw_count(task_.audio->count, random), [&](double u) {
        const double milliseconds = std::max(1.0, std::nearbyint(task_.audio->seconds.at(u) * 1000));
        return fmt::format("{}.{:03}", static_cast<std::uint64_t>(milliseconds) / 1000,
                           static_cast<std::uint64_t>(milliseconds) % 1000);
      });
    }
    if (task_.video) {
      list("video", draw_count(task_.video->count, random), [&](double u) {
        return fmt::format(R"({{"frames":{},"size":[{},{}]}})",
                           static_cast<std::uint64_t>(std::nearbyint(task_.video->frames.at(u))), task_.video->width,
                           task_.video->height);
      });
    }
    if (task_.vision_tokens) {
      coupling = std::max(coupling, task_.vision_tokens->text_coupling);
      const std::size_t before = units.size();
      list("vision", draw_count(task_.vision_tokens->count, random), [&](double u) {
        const std::uint64_t llm =
            static_cast<std::uint64_t>(std::nearbyint(task_.vision_tokens->encoder.at(u))) / task_.vision_tokens->merge;
        return fmt::format("[{},{}]", llm * task_.vision_tokens->merge, llm);
      });
      if (units.size() > before) units = units.substr(0, before) + ",\"tokens\":{" + units.substr(before + 1) + "}";
    }
    const bool same = random.uniform() < coupling;
    const double own = random.uniform();
    const double text = std::nearbyint(task_.text.at(same && coupled ? *coupled : own));
    fmt::format_to(std::back_inserter(out_), "\"text\":{}{}}}\n", static_cast<std::uint64_t>(text), units);
  }

 private:
  static std::uint64_t side(double pixels) {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::nearbyint(pixels)));
  }

  const TaskProfile& task_;
  std::string& out_;
};

}  // namespace

Profile load_profile(const std::string& path) {
  const sim::TomlFile file(path);
  TomlSection root = file.root();
  (void)root.integer("format", 1, 1, 1);
  Profile profile{root.text("name"), root.text("source"), root.text("license"), {}};
  for (TomlSection& section : root.sections("task")) profile.tasks.push_back(read_task(section));
  root.done();
  double weights = 0;
  for (const TaskProfile& task : profile.tasks) weights += task.weight;
  if (!(weights > 0)) root.fail("task", "needs at least one entry with a weight above 0");
  return profile;
}

void generate_trace(const Profile& profile, std::uint64_t samples, std::uint64_t seed, const std::string& path) {
  io::AtomicFile file(path);
  const nlohmann::ordered_json metadata{{"orchmllm_trace", 1},      {"name", profile.name},
                                        {"source", profile.source}, {"license", profile.license},
                                        {"kind", "training"},       {"samples", samples}};
  std::string out = metadata.dump() + "\n";

  std::vector<double> until;  // cumulative weights
  double weights = 0;
  for (const TaskProfile& task : profile.tasks) until.push_back(weights += task.weight);
  Random random(seed);
  constexpr std::size_t flush_bytes = 1U << 20U;
  for (std::uint64_t i = 0; i < samples; ++i) {
    const auto task = std::upper_bound(until.begin(), until.end() - 1, random.uniform() * weights) - until.begin();
    SampleWriter(profile.tasks[static_cast<std::size_t>(task)], out).write(i, random);
    if (out.size() < flush_bytes) continue;
    file.write(out);
    out.clear();
  }
  file.write(out);
  file.commit();
}

}  // namespace orch::apps
