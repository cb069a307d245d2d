// Traces: JSON Lines, one sample a line, an optional first line with metadata (docs/traces.md has the format).
//
// Reading is streaming: memory does not grow with the file. Limits, far above real data: 2^30 tokens, 2^20 pixels a
// side, 10^7 seconds, 2^20 entries a list, 64 phases a sample. Unknown keys are ignored and counted. Lengths leave here
// as integers: seconds become microseconds, rounded to nearest. Throws InvalidInput as FILE:LINE for anything that is
// not a trace. Complexity: O(bytes).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orchmllm/base/error.hpp"
#include "orchmllm/base/hash.hpp"
#include "orchmllm/io/line_reader.hpp"
#include "orchmllm/io/plain_line.hpp"
#include "orchmllm/io/trace_limits.hpp"
#include "orchmllm/model/sample.hpp"

namespace orch::io {

struct TraceInfo {
  std::string name;  ///< from the metadata, else the file's name
  std::string source;
  std::string license;
  std::string kind;                             ///< "training", "inference" or empty
  std::uint64_t samples = 0;                    ///< read
  std::optional<std::uint64_t> samples_stated;  ///< in the metadata
  std::uint64_t hash = 0;                       ///< fingerprint of all lines, independent of compression and line ends
  std::map<std::string, std::uint64_t> unknown_keys;  ///< key → lines that have it
};

namespace detail {

/// What is wrong with a line; the reader adds file and line.
[[noreturn]] inline void reject(const std::string& message) { throw InvalidInput(message); }

[[nodiscard]] inline std::string shown(simdjson::dom::element value) {
  std::string text = simdjson::minify(value);
  if (text.size() <= 40) return text;
  text.resize(37);
  text += "...";
  return text;
}

[[nodiscard]] inline std::uint32_t read_integer(simdjson::dom::element value, const std::string& what,
                                                std::uint64_t low, std::uint64_t high) {
  std::uint64_t number = 0;
  if (value.get_uint64().get(number) != simdjson::SUCCESS || number < low || number > high) {
    reject(what + " is " + shown(value) + ", expected an integer from " + std::to_string(low) + " to " +
           std::to_string(high));
  }
  return static_cast<std::uint32_t>(number);
}

[[nodiscard]] inline double read_number(simdjson::dom::element value, const std::string& what, double low,
                                        double high) {
  double number = 0;
  if (value.get_double().get(number) != simdjson::SUCCESS || !(number >= low) || !(number <= high)) {
    reject(what + " is " + shown(value) + ", expected a number from " + std::to_string(low) + " to " +
           std::to_string(high));
  }
  return number;
}

[[nodiscard]] inline std::uint64_t read_microseconds(simdjson::dom::element value, const std::string& what) {
  double seconds = 0;
  if (value.get_double().get(seconds) != simdjson::SUCCESS || !(seconds > 0) || !(seconds <= max_seconds)) {
    reject(what + " is " + shown(value) + ", expected seconds above 0, at most 10000000");
  }
  const auto microseconds = static_cast<std::uint64_t>(std::llround(seconds * 1e6));
  return microseconds == 0 ? 1 : microseconds;
}

[[nodiscard]] inline std::string read_text(simdjson::dom::element value, const std::string& what) {
  std::string_view text;
  if (value.get_string().get(text) != simdjson::SUCCESS) reject(what + " is " + shown(value) + ", expected a string");
  return std::string(text);
}

[[nodiscard]] inline simdjson::dom::array read_array(simdjson::dom::element value, const std::string& what) {
  simdjson::dom::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS) reject(what + " is " + shown(value) + ", expected a list");
  if (array.size() > max_units) reject(what + " has more than " + std::to_string(max_units) + " entries");
  return array;
}

[[nodiscard]] inline Image read_size(simdjson::dom::element value, const std::string& what) {
  const simdjson::dom::array size = read_array(value, what);
  if (size.size() != 2) reject(what + " is " + shown(value) + ", expected [width, height]");
  return {read_integer(size.at(0).value(), what + " width", 1, max_pixels_a_side),
          read_integer(size.at(1).value(), what + " height", 1, max_pixels_a_side)};
}

[[nodiscard]] inline VideoClip read_video(simdjson::dom::element value) {
  simdjson::dom::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) {
    reject("video is " + shown(value) + R"(, expected {"frames":F,"size":[width,height]} or {"seconds":S})");
  }
  VideoClip clip;
  for (const auto field : object) {
    if (field.key == "frames") {
      clip.frames = read_integer(field.value, "video frames", 1, max_frames);
    } else if (field.key == "seconds") {
      clip.microseconds = read_microseconds(field.value, "video seconds");
    } else if (field.key == "size") {
      clip.size = read_size(field.value, "video size");
    } else {
      reject("video has the key \"" + std::string(field.key) + "\", expected frames, size or seconds");
    }
  }
  if (clip.frames == 0 && clip.microseconds == 0) reject("video needs frames or seconds");
  return clip;
}

[[nodiscard]] inline CountedUnits read_counted(std::string_view phase, simdjson::dom::element value) {
  CountedUnits counted{std::string(phase), {}};
  const std::string what = "tokens of " + counted.phase;
  for (const simdjson::dom::element unit : read_array(value, what)) {
    const simdjson::dom::array pair = read_array(unit, what);
    if (pair.size() != 2) reject(what + " hold " + shown(unit) + ", expected [encoder length, LLM length or null]");
    CountedUnit lengths{read_integer(pair.at(0).value(), what + " (encoder)", 0, max_tokens), std::nullopt};
    if (!pair.at(1).value().is_null()) {
      lengths.llm_length = read_integer(pair.at(1).value(), what + " (LLM)", 0, max_tokens);
    }
    counted.units.push_back(lengths);
  }
  return counted;
}

/// Lengths per phase, every phase once.
inline void read_tokens(simdjson::dom::element value, std::vector<CountedUnits>& tokens) {
  simdjson::dom::object phases;
  if (value.get_object().get(phases) != simdjson::SUCCESS) {
    reject("tokens is " + shown(value) + R"(, expected {"phase":[[encoder, llm], …]})");
  }
  if (phases.size() > max_phases) reject("tokens has more than " + std::to_string(max_phases) + " phases");
  for (const auto phase : phases) {
    for (const CountedUnits& earlier : tokens) {
      if (earlier.phase == phase.key) reject("the phase \"" + earlier.phase + "\" stands twice in tokens");
    }
    tokens.push_back(read_counted(phase.key, phase.value));
  }
}

[[nodiscard]] inline Segment read_segment(simdjson::dom::element value) {
  if (value.is_number()) return {read_integer(value, "a text run in order", 0, max_tokens), {}};
  Segment segment;
  if (value.is_string()) segment.kind = read_text(value, "order");
  if (segment.kind.empty()) {
    reject("order holds " + shown(value) + ", expected a number of text tokens or the kind of a unit");
  }
  return segment;
}

/// What an order must meet in any model: it holds the text and names every unit once. Where `tokens` may stand for
/// images or clips, they are named or not; the model decides.
inline void check_order(const Sample& sample) {
  struct Kind {
    std::string_view name;
    std::size_t units = 0;
    bool may_be_replaced = false;
    std::size_t named = 0;
  };
  std::vector<Kind> kinds;
  const auto find = [&](std::string_view name) {
    return std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) { return kind.name == name; });
  };
  for (const CountedUnits& counted : sample.tokens) kinds.push_back({counted.phase, counted.units.size()});
  for (const auto& [name, units] : {std::pair<std::string_view, std::size_t>{"image", sample.images.size()},
                                    {"video", sample.video.size()},
                                    {"audio", sample.audio.size()}}) {
    if (find(name) == kinds.end()) kinds.push_back({name, units, !sample.tokens.empty()});
  }

  std::uint64_t text = 0;
  for (const Segment& segment : sample.order) {
    text += segment.text;
    if (segment.kind.empty()) continue;
    const auto kind = find(segment.kind);
    if (kind == kinds.end()) {
      reject("order names \"" + segment.kind + "\", expected image, video, audio or a phase of tokens");
    }
    ++kind->named;
  }
  for (const Kind& kind : kinds) {
    if (kind.named == kind.units || (kind.named == 0 && kind.may_be_replaced)) continue;
    reject("units of kind \"" + std::string(kind.name) + "\" in order: " + std::to_string(kind.named) + ", expected " +
           std::to_string(kind.units) + ", every unit of the sample once");
  }
  if (text != sample.text) {
    reject("order holds " + std::to_string(text) + " text tokens, expected " + std::to_string(sample.text) +
           ", the sample's text");
  }
}

inline void read_metadata(simdjson::dom::object line, TraceInfo& info) {
  for (const auto field : line) {
    if (field.key == "orchmllm_trace") {
      (void)read_integer(field.value, "orchmllm_trace (the format's version)", 1, 1);
    } else if (field.key == "name") {
      info.name = read_text(field.value, "name");
    } else if (field.key == "source") {
      info.source = read_text(field.value, "source");
    } else if (field.key == "license") {
      info.license = read_text(field.value, "license");
    } else if (field.key == "kind") {
      info.kind = read_text(field.value, "kind");
      if (info.kind != "training" && info.kind != "inference") {
        reject("kind is \"" + info.kind + "\", expected training or inference");
      }
    } else if (field.key == "samples") {
      info.samples_stated = read_integer(field.value, "samples", 0, std::numeric_limits<std::uint32_t>::max());
    } else {
      ++info.unknown_keys[std::string(field.key)];
    }
  }
}

inline void read_sample(simdjson::dom::object line, Sample& sample, TraceInfo& info) {
  constexpr unsigned order_bit = 512;
  unsigned seen = 0;
  const auto once = [&](unsigned bit, std::string_view key) {
    if ((seen & bit) != 0) reject("the key \"" + std::string(key) + "\" stands twice");
    seen |= bit;
  };
  for (const auto field : line) {
    if (field.key == "id") {
      once(1, field.key);
      sample.id = read_text(field.value, "id");
    } else if (field.key == "task") {
      once(2, field.key);
      sample.task = read_text(field.value, "task");
    } else if (field.key == "text") {
      once(4, field.key);
      sample.text = read_integer(field.value, "text", 0, max_tokens);
    } else if (field.key == "images") {
      once(8, field.key);
      for (const auto size : read_array(field.value, "images")) sample.images.push_back(read_size(size, "image"));
    } else if (field.key == "audio") {
      once(16, field.key);
      for (const auto clip : read_array(field.value, "audio"))
        sample.audio.push_back({read_microseconds(clip, "audio")});
    } else if (field.key == "video") {
      once(32, field.key);
      for (const auto clip : read_array(field.value, "video")) sample.video.push_back(read_video(clip));
    } else if (field.key == "tokens") {
      once(64, field.key);
      read_tokens(field.value, sample.tokens);
    } else if (field.key == "t") {
      once(128, field.key);
      sample.arrival_seconds = read_number(field.value, "t", 0, 1e12);
    } else if (field.key == "supervised") {
      once(256, field.key);
      sample.supervised = read_integer(field.value, "supervised", 0, max_tokens);
    } else if (field.key == "order") {
      once(order_bit, field.key);
      for (const auto entry : read_array(field.value, "order")) sample.order.push_back(read_segment(entry));
    } else {
      ++info.unknown_keys[std::string(field.key)];
    }
  }
  if (sample.supervised.value_or(0) > sample.text) {
    reject("supervised is " + std::to_string(*sample.supervised) + ", expected at most " + std::to_string(sample.text) +
           ", the sample's text");
  }
  if ((seen & order_bit) != 0) check_order(sample);
}

}  // namespace detail

/// A trace, sample by sample. Memory does not grow with the file.
class TraceReader {
 public:
  explicit TraceReader(const std::string& path) : lines_(path) {
    info_.name = std::filesystem::path(path).filename().string();
  }

  /// Goes to the next sample; false at the end.
  [[nodiscard]] bool next() {
    while (auto line = lines_.next()) {
      if (lines_.line() == 1 && line->starts_with("\xef\xbb\xbf")) line->remove_prefix(3);  // byte order mark
      while (!line->empty() && (line->back() == '\r' || line->back() == ' ' || line->back() == '\t'))
        line->remove_suffix(1);
      if (line->empty()) continue;
      try {
        if (!read_line(*line)) continue;
      } catch (const InvalidInput& error) {
        throw InvalidInput::at(lines_.path(), lines_.line(), error.what());
      }
      line_ = *line;
      ++info_.samples;
      return true;
    }
    info_.hash = hash_.value();
    return false;
  }

  [[nodiscard]] const Sample& sample() const { return sample_; }
  /// The sample's text as it stands in the file, without white space at its end; valid until next().
  [[nodiscard]] std::string_view line() const { return line_; }
  [[nodiscard]] std::uint64_t line_number() const { return lines_.line(); }
  /// The line with metadata, if there was one.
  [[nodiscard]] const std::string& metadata() const { return metadata_; }
  /// Complete once next() was false.
  [[nodiscard]] const TraceInfo& info() const { return info_; }

 private:
  /// False for metadata.
  [[nodiscard]] bool read_line(std::string_view line) {
    detail::clear_sample(sample_, spare_);
    bool has_order = false;
    if (detail::PlainLine(line, spare_).read(sample_, has_order)) {
      if (has_order) detail::check_order(sample_);
      first_ = false;
    } else if (!read_any_json(line)) {
      return false;
    }
    hash_.add_bytes(line);
    if (sample_.id.empty()) sample_.id = "line-" + std::to_string(lines_.line());
    return true;
  }

  [[nodiscard]] bool read_any_json(std::string_view line) {
    simdjson::dom::element element;
    // The reader guarantees the padding that simdjson reads behind a line.
    if (const auto error = parser_.parse(line.data(), line.size(), false).get(element)) {
      detail::reject(std::string("not JSON: ") + simdjson::error_message(error));
    }
    simdjson::dom::object object;
    if (element.get_object().get(object) != simdjson::SUCCESS) {
      detail::reject("the line is " + detail::shown(element) + ", expected an object");
    }
    simdjson::dom::element version;
    const bool first = std::exchange(first_, false);
    if (object["orchmllm_trace"].get(version) == simdjson::SUCCESS) {
      if (!first) detail::reject("a line of metadata (orchmllm_trace), expected a sample: metadata is the first line");
      hash_.add_bytes(line);
      detail::read_metadata(object, info_);
      metadata_ = line;
      return false;
    }
    detail::clear_sample(sample_, spare_);
    detail::read_sample(object, sample_, info_);
    return true;
  }

  LineReader lines_;
  simdjson::dom::parser parser_;
  TraceInfo info_;
  Fingerprint hash_;
  Sample sample_;
  std::vector<CountedUnits> spare_;
  std::string_view line_;
  std::string metadata_;
  bool first_ = true;
};

/// Reads a trace and calls `visit(sample)` for every sample in order. Returns what the file says of itself.
template <class Visit>
TraceInfo read_trace(const std::string& path, Visit&& visit) {
  TraceReader trace(path);
  while (trace.next()) {
    try {
      visit(trace.sample());
    } catch (const InvalidInput& error) {
      throw InvalidInput::at(path, trace.line_number(), error.what());
    }
  }
  return trace.info();
}

}  // namespace orch::io
