// Writes traces: metadata, then a sample a line (docs/traces.md has the format).
//
// The same samples give the same bytes on every machine. Seconds have three decimals, six where microseconds need them.
// Complexity: O(bytes), constant memory.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "orchmllm/io/atomic_file.hpp"
#include "orchmllm/io/trace.hpp"
#include "orchmllm/model/sample.hpp"

namespace orch::io {

namespace detail {

inline void append_string(std::string& out, std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += hex[static_cast<unsigned char>(c) >> 4U];
      out += hex[static_cast<unsigned char>(c) & 15U];
    } else {
      out += c;
    }
  }
  out += '"';
}

inline void append_integer(std::string& out, std::uint64_t number) {
  char text[24];
  out.append(text, std::to_chars(text, text + sizeof text, number).ptr);
}

inline void append_seconds(std::string& out, std::uint64_t microseconds) {
  append_integer(out, microseconds / 1000000);
  const std::string decimals = std::to_string(1000000 + microseconds % 1000000);  // the 1 keeps leading zeros
  out += '.';
  out.append(decimals, 1, decimals.ends_with("000") ? 3 : 6);
}

inline void append_size(std::string& out, const Image& size) {
  out += '[';
  append_integer(out, size.width);
  out += ',';
  append_integer(out, size.height);
  out += ']';
}

inline void append_video(std::string& out, const VideoClip& clip) {
  if (clip.frames > 0) {
    out += "{\"frames\":";
    append_integer(out, clip.frames);
  }
  if (clip.microseconds > 0) {
    out += clip.frames > 0 ? ",\"seconds\":" : "{\"seconds\":";
    append_seconds(out, clip.microseconds);
  }
  if (clip.size.width > 0) {
    out += ",\"size\":";
    append_size(out, clip.size);
  }
  out += '}';
}

inline void append_unit(std::string& out, const CountedUnit& unit) {
  out += '[';
  append_integer(out, unit.encoder_length);
  out += ',';
  if (unit.llm_length) {
    append_integer(out, *unit.llm_length);
  } else {
    out += "null";
  }
  out += ']';
}

inline void append_segment(std::string& out, const Segment& segment) {
  if (segment.kind.empty()) {
    append_integer(out, segment.text);
  } else {
    append_string(out, segment.kind);
  }
}

/// "key":[…] with a comma before; nothing for an empty list.
template <class List, class Append>
void append_list(std::string& out, std::string_view key, const List& list, const Append& append) {
  if (list.empty()) return;
  out += ",\"";
  out += key;
  out += "\":[";
  for (const auto& entry : list) {
    append(out, entry);
    out += ',';
  }
  out.back() = ']';
}

}  // namespace detail

/// A sample as one line of a trace, with its line end.
inline void append_sample(std::string& out, const Sample& sample) {
  out += "{\"id\":";
  detail::append_string(out, sample.id);
  if (!sample.task.empty()) {
    out += ",\"task\":";
    detail::append_string(out, sample.task);
  }
  out += ",\"text\":";
  detail::append_integer(out, sample.text);
  detail::append_list(out, "images", sample.images, detail::append_size);
  detail::append_list(out, "audio", sample.audio,
                      [](std::string& to, const AudioClip& clip) { detail::append_seconds(to, clip.microseconds); });
  detail::append_list(out, "video", sample.video, detail::append_video);
  if (!sample.tokens.empty()) {
    out += ",\"tokens\":{";
    for (const CountedUnits& counted : sample.tokens) {
      detail::append_string(out, counted.phase);
      out += ":[";
      for (const CountedUnit& unit : counted.units) {
        detail::append_unit(out, unit);
        out += ',';
      }
      if (out.back() == ',') out.pop_back();
      out += "],";
    }
    out.back() = '}';
  }
  detail::append_list(out, "order", sample.order, detail::append_segment);
  if (sample.supervised) {
    out += ",\"supervised\":";
    detail::append_integer(out, *sample.supervised);
  }
  if (sample.arrival_seconds) {
    char text[32];
    out += ",\"t\":";
    out.append(text, std::to_chars(text, text + sizeof text, *sample.arrival_seconds).ptr);
  }
  out += "}\n";
}

/// A trace file (gzip if the name ends in .gz), whole or not at all: nothing is left unless commit() is reached.
class TraceWriter {
 public:
  /// Of `info` the fields that are set are written: name, source, license, kind, samples_stated.
  TraceWriter(const std::string& path, const TraceInfo& info) : TraceWriter(path, "{\"orchmllm_trace\":1") {
    for (const auto& [key, value] : {std::pair<const char*, const std::string&>{"name", info.name},
                                     {"source", info.source},
                                     {"license", info.license},
                                     {"kind", info.kind}}) {
      if (value.empty()) continue;
      out_ += std::string(",\"") + key + "\":";
      detail::append_string(out_, value);
    }
    if (info.samples_stated) out_ += ",\"samples\":" + std::to_string(*info.samples_stated);
    out_ += "}\n";
  }

  /// `metadata` is the first line with its end, or empty.
  TraceWriter(const std::string& path, std::string metadata) : file_(path), out_(std::move(metadata)) {}

  void write(const Sample& sample) {
    append_sample(out_, sample);
    if (out_.size() >= flush_bytes) flush();
  }

  /// A sample's line as it was read, without its end.
  void write_line(std::string_view line) {
    out_ += line;
    out_ += '\n';
    if (out_.size() >= flush_bytes) flush();
  }

  void commit() {
    flush();
    file_.commit();
  }

 private:
  static constexpr std::size_t flush_bytes = std::size_t{1} << 20U;

  void flush() {
    file_.write(out_);
    out_.clear();
  }

  AtomicFile file_;
  std::string out_;
};

}  // namespace orch::io
