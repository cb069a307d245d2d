#include "trace_values.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trace_progress.hpp"

namespace orch::apps {

namespace {

constexpr float absent = std::numeric_limits<float>::quiet_NaN();

bool is_count(const std::string& quantity) { return quantity.ends_with(".count"); }

}  // namespace

void TaskValues::add_value(const std::string& quantity, double value, std::size_t unit) {
  QuantityValues& values = quantities[quantity];
  const auto narrow = static_cast<float>(value);
  if (!is_count(quantity)) values.all.push_back(value);
  if (unit == 0) {
    values.of_sample.resize(samples, is_count(quantity) ? 0.0F : absent);
    values.of_sample.push_back(narrow);
  }
  if (unit == 1) values.neighbours.emplace_back(values.of_sample.back(), narrow);
}

void TaskValues::add(const Sample& sample) {
  const auto add_size = [&](const std::string& prefix, const Image& size, std::size_t unit) {
    add_value(prefix + ".pixels", static_cast<double>(size.width) * size.height, unit);
    add_value(prefix + ".aspect", static_cast<double>(size.width) / size.height, unit);
  };
  const auto add_count = [&](const std::string& prefix, std::size_t count) {
    if (count > 0) add_value(prefix + ".count", static_cast<double>(count), 0);
    return count > 0;
  };
  add_value("text", sample.text, 0);
  if (sample.supervised && sample.text > 0) {
    add_value("supervised", static_cast<double>(*sample.supervised) / sample.text, 0);
  }
  bool units = add_count("images", sample.images.size());
  for (std::size_t i = 0; i < sample.images.size(); ++i) add_size("images", sample.images[i], i);
  units = add_count("audio", sample.audio.size()) || units;
  for (std::size_t i = 0; i < sample.audio.size(); ++i) {
    add_value("audio.seconds", static_cast<double>(sample.audio[i].microseconds) * 1e-6, i);
  }
  units = add_count("video", sample.video.size()) || units;
  for (std::size_t i = 0; i < sample.video.size(); ++i) {
    const VideoClip& clip = sample.video[i];
    if (clip.frames > 0) {
      add_value("video.frames", clip.frames, i);
    } else {
      add_value("video.seconds", static_cast<double>(clip.microseconds) * 1e-6, i);
    }
    if (clip.size.width > 0) add_size("video", clip.size, i);
  }
  for (const CountedUnits& counted : sample.tokens) {
    units = add_count("tokens." + counted.phase, counted.units.size()) || units;
    LlmLengths& lengths = llm[counted.phase];
    for (std::size_t i = 0; i < counted.units.size(); ++i) {
      const CountedUnit& unit = counted.units[i];
      add_value("tokens." + counted.phase + ".encoder", unit.encoder_length, i);
      if (!unit.llm_length) continue;
      const std::uint32_t length = *unit.llm_length;
      add_value("tokens." + counted.phase + ".llm", length, i);
      lengths.given = true;
      if (length == 0 && unit.encoder_length == 0) continue;
      const std::uint32_t ratio = length == 0 ? 0 : unit.encoder_length / length;
      const bool whole = ratio > 0 && ratio * length == unit.encoder_length;
      if (lengths.ratio == 0) lengths.ratio = ratio;
      lengths.same_ratio = lengths.same_ratio && whole && ratio == lengths.ratio;
    }
  }
  with_units += units ? 1 : 0;
  with_order += units && !sample.order.empty() ? 1 : 0;
  ++samples;
}

void TaskValues::finish() {
  for (auto& [name, values] : quantities) {
    values.of_sample.resize(samples, is_count(name) ? 0.0F : absent);
    if (is_count(name)) values.all.assign(values.of_sample.begin(), values.of_sample.end());
    std::sort(values.all.begin(), values.all.end());
  }
}

namespace {

std::map<std::string, std::uint64_t> task_sizes(const std::string& path) {
  std::map<std::string, std::uint64_t> sizes;
  SampleProgress progress("counting tasks of " + path);
  (void)io::read_trace(path, [&](const Sample& sample) {
    progress.step();
    ++sizes[sample.task];
  });
  return sizes;
}

}  // namespace

TraceValues read_values(const std::string& path, std::uint64_t least) {
  std::map<std::string, std::uint64_t> sizes;
  if (least > 0) sizes = task_sizes(path);
  TraceValues values;
  SampleProgress progress("reading " + path);
  values.info = io::read_trace(path, [&](const Sample& sample) {
    progress.step();
    const bool pooled = least > 0 && sizes.at(sample.task) < least;
    values.tasks[pooled ? pooled_task : sample.task].add(sample);
  });
  for (auto& [name, task] : values.tasks) task.finish();
  return values;
}

}  // namespace orch::apps
