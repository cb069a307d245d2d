// The two shapes of JSON that importers read: rows (an array's elements or lines), and lists of named entries that say
// where rows are. Complexity: O(bytes), constant memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "importer.hpp"
#include "orchmllm/io/json_items.hpp"
#include "values.hpp"

namespace orch::apps {

inline constexpr std::uint64_t all_rows = ~std::uint64_t{0};

/// Calls build(value, sample) for the first `limit` rows of a file.
template <class Build>
void each_row_value(const std::string& path, std::string_view task, Import& import, const Build& build,
                    std::uint64_t limit = all_rows) {
  io::JsonItems rows = io::JsonItems::rows(path);
  for (std::uint64_t count = 0; count < limit; ++count) {
    const auto row = rows.next();
    if (!row) return;
    // A line is found by its number, an element of an array by its own.
    std::string record;
    if (rows.form() == io::JsonItems::Form::array) record = "record " + std::to_string(row->index + 1) + ": ";
    import.record({path, row->line, record}, task, [&](Sample& sample) { build(row->value, sample);
  });
}
}  // namespace orch::apps

/// Calls build(object, sample) likewise.
template <class Build>
void each_row(const std::string& path, std::string_view task, Import& import, const Build& build,
              std::uint64_t limit = all_rows) {
  each_row_value(
      path, task, import, [&](Value row, Sample& sample) { build(read_object(row, "the record"), sample); }, limit);
}

/// For every entry {"name": {…}} of a list that --only does not leave out: calls source = resolve(object), then
/// read(name, source). Faults of `resolve` are the list's, those of `read` have file and line of their own.
template <class Resolve, class Read>
void each_entry(const std::string& path, Import& import, const Resolve& resolve, const Read& read) {
  std::vector<std::string> names;
  io::JsonItems entries = io::JsonItems::members(path);
  while (const auto entry = entries.next()) {
    names.push_back(entry->key);
    if (!import.wanted(entry->key)) continue;
    std::optional<decltype(resolve(Object{}))> source;
    const Place place{path, entry->line, "entry \"" + entry->key + "\": "};
    if (import.entry(place, [&] { source = resolve(read_object(entry->value, "the entry")); }))
      read(entry->key, *source);
  }
  import.check_only(path, names);
}

}  // namespace orch::apps
