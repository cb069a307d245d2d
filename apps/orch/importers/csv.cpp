// Any CSV with a header, by --columns FIELD=COLUMN[/N],…
//
// Fields: id, task, text (tokens), words (text to be estimated), width and height (of one image), images (how many,
// with
// --image-size), audio and video (seconds), frames (of a video), t (seconds). N divides: audio=length/16000 for samples
// at 16 kHz, t=timestamp/1000 for milliseconds. An empty cell is a length that the file does not know.
// SPDX-License-Identifier: Apache-2.0
#include "csv_reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <map>

#include "formats.hpp"
#include "values.hpp"

namespace orch::apps {

namespace {

constexpr std::array<std::string_view, 11> field_names{"id",     "task",  "text",  "words",  "width", "height",
                                                       "images", "audio", "video", "frames", "t"};

struct Column {
  std::size_t index = 0;
  std::string name;
  double divisor = 1;
};

using Columns = std::map<std::string, Column, std::less<>>;

/// A table tells nothing of its meaning: only --columns does.
std::string recognise(const Probe&) { return ""; }

Column find_column(const CsvReader<>& header, const std::string& path, const std::string& text) {
  if (const auto index = header.find(text)) return {*index, text, 1};
  const std::size_t slash = text.rfind('/');
  if (slash != std::string::npos) {
    const std::string name = text.substr(0, slash);
    if (const auto index = header.find(name)) {
      return {*index, name,
              parse_number(std::string_view(text).substr(slash + 1), "--columns: the divisor", 1e-9, 1e12)};
    }
  }
  throw InvalidInput::at(path, 1,
                         fmt::format("no column {}, there are: {}", in_quotes(text), listing(header.fields())));
}

Columns find_columns(const CsvReader<>& header, const std::string& path, const ImportOptions& options) {
  if (options.columns.empty()) {
    throw InvalidInput(fmt::format("{}: expected --columns FIELD=COLUMN,… with fields of {}; the columns are: {}", path,
                                   fmt::join(field_names, ", "), listing(header.fields())));
  }
  Columns columns;
  for (const std::string& pair : options.columns) {
    const std::size_t equal = pair.find('=');
    const std::string field = pair.substr(0, equal);
    if (equal == std::string::npos || std::find(field_names.begin(), field_names.end(), field) == field_names.end()) {
      throw InvalidInput(
          fmt::format("--columns {}: expected FIELD=COLUMN with a field of {}", pair, fmt::join(field_names, ", ")));
    }
    if (!columns.emplace(field, find_column(header, path, pair.substr(equal + 1))).second) {
      throw InvalidInput(fmt::format("--columns names the field {} twice", field));
    }
  }
  if (columns.contains("width") != columns.contains("height")) {
    throw InvalidInput("--columns: expected width and height together");
  }
  if (columns.contains("text") && columns.contains("words")) {
    throw InvalidInput("--columns: expected text (tokens) or words, not both");
  }
  return columns;
}

/// One record, read by field.
class Record {
 public:
  Record(const Columns& columns, const std::vector<std::string>& cells) : columns_(columns), cells_(cells) {}

  [[nodiscard]] bool has(std::string_view field) const { return columns_.find(field) != columns_.end(); }
  [[nodiscard]] const std::string& text(std::string_view field) const {
    return cells_[columns_.find(field)->second.index];
  }

  /// A number of a field: a whole one where `whole`, divided otherwise.
  [[nodiscard]] double number(std::string_view field, double low, double high) const {
    const Column& column = filled(field);
    const double value = parse_number(cells_[column.index], column.name, 0, 1e18) / column.divisor;
    if (value >= low && value <= high) return value;
    throw InvalidInput(fmt::format("{} is {}, as {} {}, expected {} to {}", column.name,
                                   in_quotes(cells_[column.index]), field, value, low, high));
  }

  [[nodiscard]] std::uint32_t integer(std::string_view field, std::uint64_t low, std::uint64_t high) const {
    const Column& column = filled(field);
    if (column.divisor == 1) return parse_integer(cells_[column.index], column.name, low, high);
    return static_cast<std::uint32_t>(
        std::nearbyint(number(field, static_cast<double>(low), static_cast<double>(high))));
  }

  [[nodiscard]] std::uint64_t duration(std::string_view field) const {
    const Column& column = filled(field);
    const double value = parse_number(cells_[column.index], column.name, 0, 1e18) / column.divisor;
    return microseconds(value, column.name);
  }

 private:
  [[nodiscard]] const Column& filled(std::string_view field) const {
    const Column& column = columns_.find(field)->second;
    if (cells_[column.index].empty()) throw Incomplete(fmt::format("{} is empty, expected a number", column.name));
    return column;
  }

  const Columns& columns_;
  const std::vector<std::string>& cells_;
};

void add_images(const Record& record, const Import& import, Sample& sample) {
  using io::detail::max_pixels_a_side;
  if (record.has("width")) {
    sample.images.push_back(
        {record.integer("width", 1, max_pixels_a_side), record.integer("height", 1, max_pixels_a_side)});
  }
  if (!record.has("images")) return;
  const std::uint32_t count = record.integer("images", 0, 1U << 16U);
  if (count > 0 && !import.options.image_size) {
    throw Incomplete(fmt::format("{} images without sizes, expected --image-size WxH", count));
  }
  if (count > 0) sample.images.insert(sample.images.end(), count, *import.options.image_size);
}

void read_record(const Record& record, const Import& import, Sample& sample) {
  if (record.has("id")) sample.id = record.text("id");
  if (record.has("task")) sample.task = record.text("task");
  if (record.has("text")) sample.text = record.integer("text", 0, max_tokens);
  if (record.has("words")) sample.text = import.tokens(count_words(record.text("words")));
  add_images(record, import, sample);
  if (record.has("audio")) sample.audio.push_back({record.duration("audio")});
  if (record.has("video") || record.has("frames")) {
    VideoClip clip;
    if (record.has("frames")) clip.frames = record.integer("frames", 1, io::detail::max_frames);
    if (record.has("video")) clip.microseconds = record.duration("video");
    sample.video.push_back(clip);
  }
  if (record.has("t")) sample.arrival_seconds = record.number("t", 0, 1e12);
}

void read(const std::string& path, Import& import) {
  CsvReader rows(path);
  if (!rows.next()) throw InvalidInput(path + ": the file is empty, expected a header");
  const Columns columns = find_columns(rows, path, import.options);
  if (!columns.contains("text") && !columns.contains("words")) import.note("--columns names no text: text is 0");
  while (rows.next()) {
    import.record({path, rows.line(), ""}, "csv",
                  [&](Sample& sample) { read_record(Record(columns, rows.fields()), import, sample);
  });
}
}  // namespace

}  // namespace orch::apps

const Importer csv{"csv", "CSV with a header and --columns FIELD=COLUMN,…", "training", recognise, read};

}  // namespace orch::apps
