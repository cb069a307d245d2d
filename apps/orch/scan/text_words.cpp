#include "text_words.hpp"

#include <simdjson.h>

#include <algorithm>
#include <string>

#include "bytes.hpp"

namespace orch::scan {

namespace {

constexpr std::string_view white = " \t\n\r\v\f";

[[nodiscard]] bool is_marker(std::string_view word) {
  return word == "<image>" || word == "<video>" || word == "<audio>";
}

/// Turns as {"from":…,"value":…} or {"role":…,"content":…}; what is no text in them has no words.
[[nodiscard]] std::uint64_t count_turns(simdjson::dom::array turns) {
  std::uint64_t words = 0;
  for (const simdjson::dom::element turn : turns) {
    std::string_view text;
    if (turn["value"].get_string().get(text) == simdjson::SUCCESS ||
        turn["content"].get_string().get(text) == simdjson::SUCCESS) {
      words += count_words(text);
    }
  }
  return words;
}

}  // namespace

std::uint64_t count_words(std::string_view text) {
  std::uint64_t words = 0;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(white), text.size()));
    if (text.empty()) return words;
    const std::string_view word = text.substr(0, text.find_first_of(white));
    if (!is_marker(word)) ++words;
    text.remove_prefix(word.size());
  }
}

std::optional<std::uint64_t> count_json_words(std::string_view json) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root)) {
    throw BadMember(std::string("is not JSON: ") + simdjson::error_message(error));
  }
  simdjson::dom::array turns;
  if (root["conversations"].get_array().get(turns) == simdjson::SUCCESS) return count_turns(turns);
  for (const char* key : {"text", "caption"}) {
    std::string_view text;
    if (root[key].get_string().get(text) == simdjson::SUCCESS) return count_words(text);
  }
  return std::nullopt;
}

}  // namespace orch::scan
