// Words of text members, split at ASCII white space. Markers of units (<image>, <video>, <audio>) are no words.
//
// A .json member's text is the first of its keys `conversations` (a list of turns with `value` or `content`), `text`
// and `caption` that it has; any other .json is metadata and has none.
// Complexity: O(bytes). SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace orch::scan {

[[nodiscard]] std::uint64_t count_words(std::string_view text);
/// Nothing for metadata. Throws BadMember for what is not JSON.
[[nodiscard]] std::optional<std::uint64_t> count_json_words(std::string_view json);

}  // namespace orch::scan
