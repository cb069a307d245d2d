#include "importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "formats.hpp"
#include "orchmllm/io/json_items.hpp"
#include "orchmllm/io/trace.hpp"

namespace orch::apps {

namespace {

constexpr std::array<const Importer*, 14> table{&azure,  &csv,           &energon, &internvl, &kaldi,
                                                &lhotse, &llama_factory, &llava,   &mooncake, &ms_swift,
                                                &nemo,   &omnibal,       &qwen_vl, &servegen};

/// A trace's limits, for what the readers of single values cannot see.
void check(const Sample& sample) {
  const auto check_count = [](std::size_t count, const char* what) {
    if (count > io::detail::max_units) {
      throw InvalidInput(fmt::format("{} {}, expected at most {} a sample", count, what, io::detail::max_units));
    }
  };
  check_count(sample.images.size(), "images");
  check_count(sample.audio.size(), "audio clips");
  check_count(sample.video.size(), "videos");
  check_count(sample.order.size(), "changes between text and units");
  for (const CountedUnits& counted : sample.tokens) check_count(counted.units.size(), "units");
  if (!simdjson::validate_utf8(sample.id)) throw InvalidInput("the id is not UTF-8");
  if (!simdjson::validate_utf8(sample.task)) throw InvalidInput("the task is not UTF-8");
}

std::string formats_list() {
  std::string list;
  for (const Importer* entry : table) list += fmt::format("\n  {:<14} {}", entry->name, entry->description);
  return list;
}

/// The longest prefix of the first lines that recognition looks at.
constexpr std::size_t probe_bytes = std::size_t{1} << 16U;

std::string plain_name(const std::string& path) {
  std::filesystem::path name = std::filesystem::path(path).filename();
  if (name.empty()) name = std::filesystem::path(path).parent_path().filename();
  if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
  return name.string();
}

void probe_lines(Probe& found) {
  io::LineReader lines(found.path);
  for (std::string* line : {&found.first_line, &found.second_line}) {
    while (line->find_first_not_of(" \t\r") == std::string::npos) {
      const auto text = lines.next();
      if (!text) return;
      *line = text->substr(0, probe_bytes);
      if (lines.line() == 1 && line->starts_with("\xef\xbb\xbf")) line->erase(0, 3);
    }
    if (line->ends_with('\r')) line->pop_back();
  }
}

void take_keys(Probe& found, simdjson::dom::element value) {
  simdjson::dom::array row;
  if (value.get_array().get(row) == simdjson::SUCCESS && row.size() > 0) {
    found.is_packed = true;
    value = row.at(0).value();
  }
  simdjson::dom::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) return;
  for (const auto field : object) {
    found.keys.emplace_back(field.key);
    simdjson::dom::array list;
    simdjson::dom::element inner = field.value;
    if (inner.get_array().get(list) == simdjson::SUCCESS && list.size() > 0) inner = list.at(0).value();
    simdjson::dom::object deeper;
    if (inner.get_object().get(deeper) != simdjson::SUCCESS) continue;
    for (const auto part : deeper) found.keys.push_back(fmt::format("{}.{}", field.key, part.key));
  }
}

/// True if the file has rows. Otherwise it is one object, on one line or several.
bool probe_rows(Probe& found) {
  try {
    io::JsonItems rows = io::JsonItems::rows(found.path);
    const auto row = rows.next();
    if (row) take_keys(found, row->value);
    return rows.form() == io::JsonItems::Form::array || !found.second_line.empty();
  } catch (const InvalidInput&) {
    if (found.first_line.starts_with('[')) throw;
    return false;
  }
}

void probe_json(Probe& found) {
  if (probe_rows(found)) return;
  const std::vector<std::string> of_row = std::exchange(found.keys, {});
  io::JsonItems members = io::JsonItems::members(found.path);
  found.is_list = true;
  while (const auto member = members.next()) {
    if (found.keys.empty() && member->value.is_object()) take_keys(found, member->value);
    found.is_list = found.is_list && member->value.is_object();
  }
  if (!found.is_list) found.keys = of_row;
}

}  // namespace

std::string listing(const std::vector<std::string>& names) {
  constexpr std::size_t most = 20, longest = 60;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) {
    text += (i == 0 ? "" : ", ") + names[i].substr(0, longest);
  }
  return names.size() > most ? fmt::format("{}, … ({} more)", text, names.size() - most) : text;
}

bool Import::guarded(const Place& place, const std::function<void()>& call) {
  const auto placed = [&](const std::string& message) {
    if (place.line == 0) return InvalidInput(place.path + ": " + place.record + message);
    return InvalidInput::at(place.path, place.line, place.record + message);
  };
  try {
    call();
    return true;
  } catch (const Incomplete& error) {
    if (options.skip_incomplete) return false;
    throw placed(std::string(error.what()) + ", or --skip-incomplete");
  } catch (const InvalidInput& error) {
    throw placed(error.what());
  }
}

void Import::record(const Place& place, std::string_view task, const std::function<void(Sample&)>& build) {
  io::detail::clear_sample(sample_);
  sample_.task = task;
  const bool complete = guarded(place, [&] {
    build(sample_);
    if (sample_.id.empty()) sample_.id = fmt::format("{}-{}", task, samples_ + skipped_);
    check(sample_);
  });
  if (!complete) {
    ++skipped_;
    return;
  }
  ++samples_;
  sink_(sample_);
}

bool Import::entry(const Place& place, const std::function<void()>& resolve) {
  if (guarded(place, resolve)) return true;
  note(fmt::format("skipped {}: its rows cannot be read", place.record.substr(0, place.record.size() - 2)));
  return false;
}

std::uint32_t Import::tokens(std::uint64_t words) const {
  if (!options.tokens_per_word) {
    throw InvalidInput(
        "the text has no token counts, expected --tokens-per-word R (an estimate, such as 1.3; no tokenizer is built "
        "in)");
  }
  const double tokens = std::nearbyint(static_cast<double>(words) * *options.tokens_per_word);
  if (tokens > static_cast<double>(io::detail::max_tokens)) {
    throw InvalidInput(
        fmt::format("{} words are {} tokens, expected at most {}", words, tokens, io::detail::max_tokens));
  }
  return static_cast<std::uint32_t>(tokens);
}

void Import::note(const std::string& text) {
  constexpr std::size_t most = 50;
  if (notes_.size() > most || std::find(notes_.begin(), notes_.end(), text) != notes_.end()) return;
  notes_.push_back(notes_.size() < most ? text : "there is more of this kind");
}

bool Import::wanted(std::string_view entry) const {
  return options.only.empty() || std::find(options.only.begin(), options.only.end(), entry) != options.only.end();
}

void Import::check_only(const std::string& path, const std::vector<std::string>& entries) const {
  for (const std::string& name : options.only) {
    if (std::find(entries.begin(), entries.end(), name) != entries.end()) continue;
    throw InvalidInput(fmt::format("{}: no entry \"{}\" (--only), there are: {}", path, name, listing(entries)));
  }
}

bool Probe::has(std::initializer_list<std::string_view> all) const {
  return std::all_of(all.begin(), all.end(),
                     [&](std::string_view key) { return std::find(keys.begin(), keys.end(), key) != keys.end(); });
}

Probe probe(const std::string& path) {
  Probe found;
  found.path = path;
  found.name = plain_name(path);
  found.is_folder = std::filesystem::is_directory(path);
  if (found.is_folder) return found;
  try {
    probe_lines(found);
  } catch (const InvalidInput&) {
    // A document may stand on one line of any length; JsonItems reads it. What cannot be opened fails there again.
  }
  const std::size_t first = found.first_line.find_first_not_of(" \t");
  const bool may_be_json =
      first == std::string::npos || found.first_line[first] == '[' || found.first_line[first] == '{';
  if (may_be_json) probe_json(found);
  return found;
}

std::span<const Importer* const> importers() { return table; }

const Importer& importer(std::string_view name) {
  for (const Importer* entry : table) {
    if (entry->name == name) return *entry;
  }
  throw InvalidInput(fmt::format("--from {}: no such format, expected auto or one of{}", name, formats_list()));
}

Recognition recognise(const std::string& path) {
  const Probe found = probe(path);
  std::vector<Recognition> matches;
  for (const Importer* entry : table) {
    std::string reason = entry->recognise(found);
    if (!reason.empty()) matches.push_back({entry, std::move(reason)});
  }
  if (matches.size() == 1) return matches.front();
  if (matches.empty()) {
    throw InvalidInput(
        fmt::format("{}: the format is not recognised, expected --from with one of{}", path, formats_list()));
  }
  std::string names;
  for (const Recognition& match : matches) names += fmt::format("\n  {:<14} {}", match.importer->name, match.reason);
  throw InvalidInput(fmt::format("{}: several formats fit, expected --from with one of{}", path, names));
}

}  // namespace orch::apps
