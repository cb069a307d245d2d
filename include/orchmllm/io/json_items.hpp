// Records of a JSON file, one at a time: the lines of JSON Lines, the elements of a document that is an array, or the
// members of one that is an object.
//
// Memory does not grow with the file, only with its largest record (16 MiB at most), so a whole-document array of any
// size streams as its line form does, also where it stands on a single line. Plain, gzip or zstd. Nesting is bounded by
// the parser (1024). Complexity: O(bytes). Throws InvalidInput as FILE:LINE for anything that is not JSON.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simdjson.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "orchmllm/base/error.hpp"
#include "orchmllm/io/line_reader.hpp"

namespace orch::io {

struct JsonItem {
  std::string key;               ///< of a member; empty elsewhere
  simdjson::dom::element value;  ///< valid until the next item
  std::uint64_t line = 0;        ///< where it begins, from 1
  std::uint64_t index = 0;       ///< from 0
};

class JsonItems {
 public:
  enum class Form { lines, array, object };

  /// Rows: an array's elements, else one value a line. An array that ends on its line with more lines behind it is a
  /// row itself.
  [[nodiscard]] static JsonItems rows(const std::string& path) {
    JsonItems items(path);
    const char first = items.first();
    items.form_ = first == '[' && !items.has_rows_of_arrays() ? Form::array : Form::lines;
    items.open();
    return items;
  }

  /// Members of one object.
  [[nodiscard]] static JsonItems members(const std::string& path) {
    JsonItems items(path);
    if (items.first() != '{') items.fail("the document is no object, expected {\"name\": …}");
    items.form_ = Form::object;
    items.open();
    return items;
  }

  [[nodiscard]] Form form() const { return form_; }

  /// The next record, valid until the next call; nothing at the end.
  [[nodiscard]] std::optional<JsonItem> next() {
    const std::uint64_t index = count_;
    if (form_ == Form::lines) {
      skip_space();
      if (at_end()) return std::nullopt;
      const std::uint64_t line = line_;
      ++count_;
      return JsonItem{{}, parse(take(line_length()), line), line, index};
    }
    if (closed_ || !another()) return std::nullopt;
    JsonItem item;
    if (form_ == Form::object) {
      if (peek() != '"') fail("a member has no name, expected \"name\": value");
      item.key = std::string(parse(take(value_length()), line_).get_string().value());
      skip_space();
      if (peek() != ':') fail("no colon behind the name \"" + item.key + "\"");
      (void)take(1);
      skip_space();
    }
    item.line = line_;
    item.index = index;
    ++count_;
    const std::string_view text = take(value_length());
    item.value = parse(text, item.line);
    return item;
  }

 private:
  explicit JsonItems(const std::string& path) : path_(path), window_(path) {}

  [[noreturn]] void fail(const std::string& message) const { throw InvalidInput::at(path_, line_, message); }

  [[nodiscard]] static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

  /// Reads until the window has more than `count` bytes; false at the end of the file.
  [[nodiscard]] bool have(std::size_t count) {
    while (window_.bytes().size() <= count) {
      if (window_.bytes().size() > max_line_bytes) {
        fail("the record is longer than " + std::to_string(max_line_bytes) + " bytes");
      }
      if (window_.refill()) continue;
      if (!window_.error().empty()) fail(window_.error());
      return false;
    }
    return true;
  }

  [[nodiscard]] bool at_end() { return !have(0); }
  [[nodiscard]] char peek() {
    if (at_end()) fail("the document ends early");
    return window_.bytes().front();
  }

  std::string_view take(std::size_t count) {
    const std::string_view text = window_.bytes().substr(0, count);
    line_ += static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
    window_.take(count);
    return text;
  }

  void skip_space() {
    while (have(0) && is_space(window_.bytes().front())) {
      const std::string_view bytes = window_.bytes();
      const auto end = std::find_if(bytes.begin(), bytes.end(), [](char c) { return !is_space(c); });
      (void)take(static_cast<std::size_t>(end - bytes.begin()));
    }
  }

  /// The first character that counts.
  [[nodiscard]] char first() {
    if (have(2) && window_.bytes().starts_with("\xef\xbb\xbf")) window_.take(3);  // byte order mark
    skip_space();
    if (at_end()) fail("the file is empty");
    return window_.bytes().front();
  }

  [[nodiscard]] bool has_rows_of_arrays() {
    std::size_t line = 0;
    for (std::size_t scanned = 0; (line = window_.bytes().find('\n', scanned)) == std::string_view::npos;) {
      scanned = window_.bytes().size();
      if (scanned > max_line_bytes || !window_.refill()) return false;
    }
    const std::string_view text = window_.bytes().substr(0, line);
    if (text.substr(0, text.find_last_not_of(" \t\r") + 1).back() != ']') return false;
    simdjson::dom::element whole;
    if (parser_.parse(text.data(), text.size(), false).get(whole) != simdjson::SUCCESS) return false;
    std::size_t behind = line;
    while (have(behind) && is_space(window_.bytes()[behind])) ++behind;
    return have(behind);
  }

  void open() {
    if (form_ != Form::lines) (void)take(1);
  }

  /// Bytes up to the end of the line.
  [[nodiscard]] std::size_t line_length() {
    for (std::size_t scanned = 0;;) {
      const std::size_t found = window_.bytes().find('\n', scanned);
      if (found != std::string_view::npos) return found;
      scanned = window_.bytes().size();
      if (!have(scanned)) return scanned;
    }
  }

  /// Moves to the next element or member; false behind the last.
  [[nodiscard]] bool another() {
    const char close = form_ == Form::array ? ']' : '}';
    skip_space();
    if (peek() == close) {
      (void)take(1);
      skip_space();
      if (!at_end()) fail("text behind the end of the document");
      closed_ = true;
      return false;
    }
    if (count_ == 0) return true;
    if (peek() != ',') fail("no comma behind record " + std::to_string(count_));
    (void)take(1);
    skip_space();
    if (peek() == close) fail("a comma behind the last record");
    return true;
  }

  /// Bytes of the value at the front. Brackets are counted here; the parser checks that they match.
  [[nodiscard]] std::size_t value_length() {
    std::size_t depth = 0;
    bool in_string = false;
    for (std::size_t i = 0; have(i); ++i) {
      const std::string_view bytes = window_.bytes();
      for (; i < bytes.size(); ++i) {
        const char c = bytes[i];
        if (in_string) {
          if (c == '\\') {
            ++i;
          } else if (c == '"') {
            in_string = false;
            if (depth == 0) return i + 1;
          }
        } else if (c == '"') {
          in_string = true;
        } else if (c == '{' || c == '[') {
          ++depth;
        } else if (depth == 0 && (c == ',' || c == ']' || c == '}' || is_space(c))) {
          return i;
        } else if ((c == '}' || c == ']') && --depth == 0) {
          return i + 1;
        }
      }
      --i;  // the outer loop counts on
    }
    fail("the document ends inside the record that begins here");
  }

  [[nodiscard]] simdjson::dom::element parse(std::string_view text, std::uint64_t line) {
    simdjson::dom::element element;
    // The window guarantees the padding that simdjson reads behind a value.
    if (const auto error = parser_.parse(text.data(), text.size(), false).get(element)) {
      const std::string record = form_ == Form::array ? "record " + std::to_string(count_) + ": " : "";
      throw InvalidInput::at(path_, line, record + "not JSON: " + simdjson::error_message(error));
    }
    return element;
  }

  std::string path_;
  detail::ByteWindow window_;
  simdjson::dom::parser parser_;
  Form form_ = Form::lines;
  std::uint64_t line_ = 1;
  std::uint64_t count_ = 0;
  bool closed_ = false;
};

}  // namespace orch::io
