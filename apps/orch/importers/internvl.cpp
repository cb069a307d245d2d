// InternVL meta files: {"name": {"annotation": path of rows, "repeat_time": R, …}}. A repeat_time below 1 takes the
// first part of the rows, above 1 all of them that many whole times, as the trainer does.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "conversation.hpp"
#include "formats.hpp"
#include "json_rows.hpp"

namespace orch::apps {

namespace {

struct Source {
  std::string annotation;
  double repeat_time = 1;
};

constexpr double most_repeats = 1000;

std::string recognise(const Probe& probe) {
  return probe.is_list && probe.has({"annotation"}) ? "entries have annotation" : "";
}

Source resolve(const std::string& path, Object entry) {
  Source source{listed_file(path, read_text(need(entry, "annotation"), "annotation")), 1};
  if (const auto repeat = find(entry, "repeat_time")) {
    source.repeat_time = read_number(*repeat, "repeat_time", 0, most_repeats);
  }
  return source;
}

std::uint64_t count_rows(const std::string& path) {
  io::JsonItems rows = io::JsonItems::rows(path);
  std::uint64_t count = 0;
  while (rows.next()) ++count;
  return count;
}

/// The first `limit` rows.
void read_rows(const std::string& path, const std::string& task, std::uint64_t limit, Import& import) {
  each_row(
      path, task, import, [&](Object row, Sample& sample) { read_conversation(row, {}, import, sample); }, limit);
}

void read_source(const std::string& name, const Source& source, Import& import) {
  if (source.repeat_time < 1) {
    const auto part = static_cast<double>(count_rows(source.annotation)) * source.repeat_time;
    return read_rows(source.annotation, name, static_cast<std::uint64_t>(part), import);
  }
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(source.repeat_time); ++i) {
    read_rows(source.annotation, name, all_rows, import);
  }
}

void read(const std::string& path, Import& import) {
  each_entry(
      path, import, [&](Object entry) { return resolve(path, entry); },
      [&](const std::string& name, const Source& source) { read_source(name, source, import); });
}

}  // namespace

const Importer internvl{"internvl", "InternVL meta file that names files of rows (JSON)", "training", recognise, read};

}  // namespace orch::apps
