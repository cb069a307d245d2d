// Comma-separated values, strictly by RFC 4180, in constant memory: a header, then records of as many fields.
//
// A field in quotes may hold commas, line ends and doubled quotes; spaces around its quotes are passed over. Line ends
// are LF or CR LF; empty lines are passed over. Complexity: O(bytes). Throws InvalidInput as FILE:LINE.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orchmllm/base/error.hpp"
#include "orchmllm/io/line_reader.hpp"

namespace orch::apps {

/// `Lines` gives lines as io::LineReader does.
template <class Lines = io::LineReader>
class CsvReader {
 public:
  explicit CsvReader(const std::string& path) : lines_(path) {}
  explicit CsvReader(Lines lines) : lines_(std::move(lines)) {}

  /// The next record; false at the end of the file. The first record decides how many fields the others have.
  [[nodiscard]] bool next() {
    std::optional<std::string_view> line = next_line();
    while (line && line->empty()) line = next_line();
    if (!line) return false;
    line_ = lines_.line();
    const std::size_t expected = fields_.size();
    fields_.clear();
    do {
      read_field(line);
    } while (after_comma_);
    if (expected != 0 && fields_.size() != expected) {
      fail(std::to_string(fields_.size()) + " fields, expected " + std::to_string(expected) +
           ", as in the first record");
    }
    return true;
  }

  [[nodiscard]] const std::vector<std::string>& fields() const { return fields_; }
  [[nodiscard]] std::uint64_t line() const { return line_; }  ///< where the record begins

  /// Of a header: where a column stands.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view column) const {
    const auto found = std::find(fields_.begin(), fields_.end(), column);
    if (found == fields_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - fields_.begin());
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw InvalidInput::at(lines_.path(), line_, message); }

  [[nodiscard]] std::optional<std::string_view> next_line() {
    std::optional<std::string_view> line = lines_.next();
    if (line && lines_.line() == 1 && line->starts_with("\xef\xbb\xbf")) line->remove_prefix(3);  // byte order mark
    if (line && line->ends_with('\r')) line->remove_suffix(1);
    return line;
  }

  void read_field(std::optional<std::string_view>& line) {
    const std::size_t first = std::min(line->find_first_not_of(' '), line->size());
    if (line->substr(first).starts_with('"')) {
      line->remove_prefix(first);
      return read_quoted(line);
    }
    const std::size_t end = std::min(line->find(','), line->size());
    const std::string_view field = line->substr(0, end);
    if (field.find('"') != std::string_view::npos) {
      fail("a quote inside a field without quotes, expected \"…\" around it and \"\" inside");
    }
    fields_.emplace_back(field);
    finish_field(*line, end);
  }

  void read_quoted(std::optional<std::string_view>& line) {
    std::string field;
    std::size_t at = 1;
    while (true) {
      const std::size_t quote = line->find('"', at);
      if (quote == std::string_view::npos) {
        field += line->substr(at);
        field += '\n';
        if (field.size() > io::max_line_bytes) fail("a field of more than 16 MiB: is a closing quote missing?");
        line = next_line();
        if (!line) fail("a quote that is never closed");
        at = 0;
        continue;
      }
      field += line->substr(at, quote - at);
      at = quote + 1;
      if (at == line->size() || (*line)[at] != '"') break;
      field += '"';
      ++at;
    }
    while (at < line->size() && (*line)[at] == ' ') ++at;
    if (at < line->size() && (*line)[at] != ',') fail("text behind a closing quote, expected a comma");
    fields_.push_back(std::move(field));
    finish_field(*line, at);
  }

  void finish_field(std::string_view& line, std::size_t end) {
    after_comma_ = end < line.size();
    line.remove_prefix(after_comma_ ? end + 1 : end);
  }

  Lines lines_;
  std::vector<std::string> fields_;
  std::uint64_t line_ = 0;
  bool after_comma_ = false;
};

}  // namespace orch::apps
