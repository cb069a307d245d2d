// Single values of foreign files: numbers in text, members of JSON rows, words.
//
// The limits and messages are those of the trace reader (orchmllm/io/trace.hpp), so what passes here is a valid trace.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "importer.hpp"
#include "orchmllm/io/trace.hpp"

namespace orch::apps {

using Value = simdjson::dom::element;
using Object = simdjson::dom::object;
using io::detail::max_seconds;
using io::detail::max_tokens;
using io::detail::read_array;
using io::detail::read_integer;
using io::detail::read_microseconds;
using io::detail::read_number;
using io::detail::read_text;
using io::detail::shown;

// --- members of JSON rows ---

[[nodiscard]] inline Object read_object(Value value, const std::string& what) {
  Object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) {
    throw InvalidInput(what + " is " + shown(value) + ", expected an object");
  }
  return object;
}

/// Absent and null are the same.
[[nodiscard]] inline std::optional<Value> find(Object object, std::string_view key) {
  Value value;
  if (object.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

[[nodiscard]] inline Value need(Object object, std::string_view key) {
  if (const auto value = find(object, key)) return *value;
  throw InvalidInput("no \"" + std::string(key) + "\" in the record");
}

/// A name that may be written as a number.
[[nodiscard]] inline std::string read_name(Object object, std::string_view key) {
  const auto value = find(object, key);
  if (!value) return {};
  if (value->is_string()) return read_text(*value, std::string(key));
  if (value->is_int64() || value->is_uint64()) return simdjson::minify(*value);
  throw InvalidInput(std::string(key) + " is " + shown(*value) + ", expected a string or an integer");
}

// --- numbers in text ---

[[nodiscard]] inline std::string in_quotes(std::string_view text) {
  return "\"" + std::string(text.substr(0, 40)) + (text.size() > 40 ? "…\"" : "\"");
}

[[nodiscard]] inline double parse_number(std::string_view text, const std::string& what, double low, double high) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !(number >= low) || !(number <= high)) {
    throw InvalidInput(fmt::format("{} is {}, expected a number from {} to {}", what, in_quotes(text), low, high));
  }
  return number;
}

[[nodiscard]] inline std::uint32_t parse_integer(std::string_view text, const std::string& what, std::uint64_t low,
                                                 std::uint64_t high) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < low || number > high) {
    throw InvalidInput(fmt::format("{} is {}, expected an integer from {} to {}", what, in_quotes(text), low, high));
  }
  return static_cast<std::uint32_t>(number);
}

/// Seconds above 0 as microseconds, at least 1.
[[nodiscard]] inline std::uint64_t microseconds(double seconds, const std::string& what) {
  if (!(seconds > 0) || !(seconds <= max_seconds)) {
    throw InvalidInput(fmt::format("{} is {}, expected seconds above 0, at most {}", what, seconds, max_seconds));
  }
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(seconds * 1e6)));
}

[[nodiscard]] inline std::uint64_t parse_microseconds(std::string_view text, const std::string& what) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || end != text.data() + text.size() || !(seconds > 0) || !(seconds <= max_seconds)) {
    throw InvalidInput(
        fmt::format("{} is {}, expected seconds above 0, at most {}", what, in_quotes(text), max_seconds));
  }
  return microseconds(seconds, what);
}

// --- text ---

[[nodiscard]] inline bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// The next word; empty at the end. Words are separated by ASCII white space.
[[nodiscard]] inline std::string_view next_word(std::string_view& text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  const auto end = std::find_if(text.begin(), text.end(), is_blank);
  const std::string_view word = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(word.size());
  return word;
}

[[nodiscard]] inline std::uint64_t count_words(std::string_view text) {
  std::uint64_t words = 0;
  while (!next_word(text).empty()) ++words;
  return words;
}

// --- files ---

/// A file that a list names, relative to the list's folder. Devices and pipes are refused: they may never end.
[[nodiscard]] inline std::string listed_file(const std::string& list, const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(list).parent_path() / name;
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return path.string();
  throw Incomplete("the file " + path.string() + " is not there, expected it relative to the list's folder");
}

}  // namespace orch::apps
