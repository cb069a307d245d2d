#include "profile.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "laws.hpp"
#include "toml_reader.hpp"

namespace orch::apps {

namespace {

using sim::TomlSection;

/// The law at `key`, within the limits of the quantity PREFIX.key.
Quantiles read_quantity(TomlSection& section, const char* key, const std::string& prefix = "") {
  const Limits limits = limits_of(prefix.empty() ? key : prefix + "." + key);
  const double beyond = limits.whole ? 0.5 : 0;
  return read_law(section, key, limits.low - beyond, limits.high + beyond);
}

std::vector<std::string> size_names(const UnitLaws& units) {
  switch (units.kind) {
    case UnitKind::image:
      return {"images.pixels", "images.aspect"};
    case UnitKind::audio:
      return {"audio.seconds"};
    case UnitKind::video_frames:
      return {"video.frames", "video.pixels", "video.aspect"};
    case UnitKind::video_seconds:
      return {"video.seconds", "video.pixels", "video.aspect"};
    case UnitKind::counted:
      break;
  }
  return {"tokens." + units.phase + ".encoder", "tokens." + units.phase + ".llm"};
}

std::string count_name(const UnitLaws& units) {
  if (units.kind == UnitKind::image) return "images.count";
  if (units.kind == UnitKind::audio) return "audio.count";
  return units.kind == UnitKind::counted ? "tokens." + units.phase + ".count" : "video.count";
}

/// What every kind of unit has: its count, and how alike the units of a sample are.
UnitLaws read_units(TomlSection& part, UnitKind kind) {
  UnitLaws units;
  units.kind = kind;
  units.count = read_quantity(part, "count", "units");
  units.alike = part.number("alike", 0, 1, 0.0);
  return units;
}

void read_frame_size(TomlSection& part, UnitLaws& units) {
  units.sizes.push_back(read_quantity(part, "pixels", "units"));
  units.sizes.push_back(read_quantity(part, "aspect", "units"));
}

UnitLaws read_images(TomlSection part) {
  UnitLaws units = read_units(part, UnitKind::image);
  read_frame_size(part, units);
  part.done();
  return units;
}

UnitLaws read_audio(TomlSection part) {
  UnitLaws units = read_units(part, UnitKind::audio);
  units.sizes.push_back(read_quantity(part, "seconds", "audio"));
  part.done();
  return units;
}

UnitLaws read_video(TomlSection part) {
  if (part.has("frames") == part.has("seconds")) part.fail("frames", "or seconds must be given, one of them");
  const bool frames = part.has("frames");
  UnitLaws units = read_units(part, frames ? UnitKind::video_frames : UnitKind::video_seconds);
  units.sizes.push_back(read_quantity(part, frames ? "frames" : "seconds", "video"));
  if (part.has("pixels") || part.has("aspect")) read_frame_size(part, units);
  part.done();
  return units;
}

UnitLaws read_counted(TomlSection part, const std::string& phase) {
  UnitLaws units = read_units(part, UnitKind::counted);
  units.phase = phase;
  units.sizes.push_back(read_quantity(part, "encoder", "tokens"));
  if (part.has("llm")) {
    if (part.has("merge")) part.fail("merge", "must not stand beside llm");
    units.sizes.push_back(read_quantity(part, "llm", "tokens"));
  } else if (part.has("merge")) {
    units.merge = part.integer32("merge", 1, 1024);
  }
  part.done();
  return units;
}

Correlations read_correlations(TomlSection part, const TaskLaws& task) {
  const std::vector<std::string> between = part.texts("between", {});
  const std::vector<double> entries = part.numbers("lower");
  const std::size_t n = between.size();
  if (n < 2) part.fail("between", "must name two quantities or more");
  if (entries.size() != n * (n - 1) / 2) {
    part.fail("lower", fmt::format("has {} entries, must have {}: the rows below the diagonal of {} quantities",
                                   entries.size(), n * (n - 1) / 2, n));
  }
  Correlations correlations;
  const std::vector<std::string> known = task.quantity_names();
  for (const std::string& name : between) {
    const auto found = static_cast<std::size_t>(std::find(known.begin(), known.end(), name) - known.begin());
    if (found == known.size()) {
      part.fail("between", fmt::format("names \"{}\", expected one of {}", name, fmt::join(known, ", ")));
    }
    if (std::count(between.begin(), between.end(), name) > 1) {
      part.fail("between", fmt::format("names \"{}\" twice", name));
    }
    correlations.quantities.push_back(found);
  }
  Matrix matrix(n, std::vector<double>(n, 1.0));
  std::size_t next = 0;
  for (std::size_t i = 1; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) matrix[i][j] = entries[next++];
  }
  if (std::any_of(entries.begin(), entries.end(), [](double r) { return !(r > -1 && r < 1); })) {
    part.fail("lower", "must hold numbers above -1 and below 1");
  }
  const auto lower = cholesky(matrix);
  if (!lower) {
    part.fail("lower", "is no correlation matrix: not positive definite; correlations nearer to 0 are");
  }
  correlations.lower = *lower;
  part.done();
  return correlations;
}

TaskLaws read_task(TomlSection section) {
  TaskLaws task;
  task.name = section.text("name");
  task.weight = section.number("weight", 0, 1e9);
  (void)section.text("source");  // every profile says where its figures come from
  task.text = read_quantity(section, "text");
  if (section.has("supervised")) task.supervised = read_quantity(section, "supervised");
  task.interleaved = section.number("interleaved", 0, 1, 0.0);
  if (section.has("images")) task.units.push_back(read_images(section.section("images")));
  if (section.has("audio")) task.units.push_back(read_audio(section.section("audio")));
  if (section.has("video")) task.units.push_back(read_video(section.section("video")));
  if (section.has("tokens")) {
    TomlSection tokens = section.section("tokens");
    for (const std::string& phase : tokens.keys()) {
      const bool plain = std::all_of(phase.begin(), phase.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
      });
      const bool twice = (phase == "image" && section.has("images")) || (phase == "audio" && section.has("audio")) ||
                         (phase == "video" && section.has("video"));
      if (twice)
        tokens.fail(phase.c_str(), "replaces units that this task gives by their sizes; one of both is needed");
      if (phase.empty() || !plain) tokens.fail(phase.c_str(), "is no phase; letters, digits, _ and - make its name");
      task.units.push_back(read_counted(tokens.section(phase.c_str()), phase));
    }
    tokens.done();
  }
  if (task.quantity_names().size() > most_quantities) {
    section.fail("tokens", fmt::format("makes more than {} quantities", most_quantities));
  }
  if (section.has("correlation")) task.correlations = read_correlations(section.section("correlation"), task);
  section.done();
  return task;
}

}  // namespace

Limits limits_of(const std::string& quantity) {
  const std::string last = quantity.substr(quantity.rfind('.') + 1);  // all of it without a dot
  if (last == "count") return {0, 4096, true};
  if (last == "pixels") return {1, 1 << 28, false};
  if (last == "aspect") return {1e-3, 1e3, false};
  if (last == "seconds") return {1e-3, 1e6, false};
  if (last == "frames") return {1, 1e6, true};
  if (last == "supervised") return {0, 1, false};
  return {0, 1 << 24, true};  // tokens
}

std::vector<std::string> TaskLaws::quantity_names() const {
  std::vector<std::string> names{"text", "supervised"};
  for (const UnitLaws& kind : units) {
    names.push_back(count_name(kind));
    std::vector<std::string> sizes = size_names(kind);
    names.insert(names.end(), sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(kind.sizes.size()));
  }
  return names;
}

std::uint64_t profile_format(const std::string& path) {
  const sim::TomlFile file(path);
  return file.root().integer("format", 1, 2, 1);
}

TaskProfiles load_task_profiles(const std::string& path) {
  const sim::TomlFile file(path);
  TomlSection root = file.root();
  (void)root.integer("format", 2, 2);
  TaskProfiles profile{root.text("name"), root.text("source"), root.text("license"), {}};
  for (TomlSection& section : root.sections("task")) profile.tasks.push_back(read_task(section));
  root.done();
  double weights = 0;
  for (const TaskLaws& task : profile.tasks) weights += task.weight;
  if (!(weights > 0)) root.fail("task", "needs at least one entry with a weight above 0");
  return profile;
}

}  // namespace orch::apps
