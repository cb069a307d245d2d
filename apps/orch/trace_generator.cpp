#include "trace_generator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "orchmllm/base/error.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/io/trace_writer.hpp"
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

std::uint32_t rounded(double value) { return static_cast<std::uint32_t>(std::nearbyint(value)); }

std::uint32_t side(double pixels) { return std::max<std::uint32_t>(1, rounded(pixels)); }

/// Draws one sample. The order of the draws is part of a profile's meaning: the same seed, the same trace.
Sample draw_sample(const TaskProfile& task, std::uint64_t index, Random& random) {
  Sample sample;
  sample.id = "s" + std::to_string(index);
  sample.task = task.name;
  // The first unit's draw may decide the text's.
  std::optional<double> coupled;
  double coupling = 0;
  const auto draw_units = [&](const auto& part, const auto& unit) {
    for (std::uint64_t left = draw_count(part.count, random); left > 0; --left) {
      const double u = random.uniform();
      if (!coupled) coupled = u;
      unit(u);
    }
  };
  if (task.images) {
    coupling = std::max(coupling, task.images->text_coupling);
    draw_units(*task.images, [&](double u) {
      const double pixels = task.images->pixels.at(u);
      const double aspect = task.images->aspect.at(random.uniform());
      sample.images.push_back({side(std::sqrt(pixels * aspect)), side(std::sqrt(pixels / aspect))});
    });
  }
  if (task.audio) {
    coupling = std::max(coupling, task.audio->text_coupling);
    draw_units(*task.audio, [&](double u) {
      const double milliseconds = std::max(1.0, std::nearbyint(task.audio->seconds.at(u) * 1000));
      sample.audio.push_back({static_cast<std::uint64_t>(milliseconds) * 1000});
    });
  }
  if (task.video) {
    draw_units(*task.video, [&](double u) {
      sample.video.push_back({rounded(task.video->frames.at(u)), 0, {task.video->width, task.video->height}});
    });
  }
  if (task.vision_tokens) {
    coupling = std::max(coupling, task.vision_tokens->text_coupling);
    CountedUnits counted{"vision", {}};
    draw_units(*task.vision_tokens, [&](double u) {
      const std::uint32_t llm = rounded(task.vision_tokens->encoder.at(u)) / task.vision_tokens->merge;
      counted.units.push_back({llm * task.vision_tokens->merge, llm});
    });
    if (!counted.units.empty()) sample.tokens.push_back(std::move(counted));
  }
  const bool same = random.uniform() < coupling;
  const double own = random.uniform();
  sample.text = rounded(task.text.at(same && coupled ? *coupled : own));
  return sample;
}

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
  io::TraceInfo info;
  info.name = profile.name;
  info.source = profile.source;
  info.license = profile.license;
  info.kind = "training";
  info.samples_stated = samples;
  io::TraceWriter trace(path, info);

  std::vector<double> until;  // cumulative weights
  double weights = 0;
  for (const TaskProfile& task : profile.tasks) until.push_back(weights += task.weight);
  Random random(seed);
  for (std::uint64_t i = 0; i < samples; ++i) {
    const auto task = std::upper_bound(until.begin(), until.end() - 1, random.uniform() * weights) - until.begin();
    trace.write(draw_sample(profile.tasks[static_cast<std::size_t>(task)], i, random));
  }
  trace.commit();
}

}  // namespace orch::apps
