// LLaMA-Factory: dataset_info.json {"name": {"file_name", "formatting": "alpaca" or "sharegpt", "columns", "tags",
// "num_samples"}}, or a file of alpaca rows {"instruction", "input", "output"}.
//
// Rows of preference data (ranking) have two answers and no single length; entries that stand on a hub or in other
// formats than JSON have no rows here: all of these are incomplete. num_samples takes the first rows.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "conversation.hpp"
#include "formats.hpp"
#include "json_rows.hpp"
#include "transcript.hpp"

namespace orch::apps {

namespace {

/// Where alpaca rows have their texts.
struct AlpacaKeys {
  std::vector<std::string> prompts{"instruction", "input"};
  std::string response = "output";
};

struct Source {
  std::string file;
  bool is_alpaca = true;
  AlpacaKeys alpaca;
  ConversationKeys conversation;
  std::uint64_t limit = all_rows;
};

std::string recognise(const Probe& probe) {
  if (probe.is_list && (probe.has({"file_name"}) || probe.has({"hf_hub_url"})))
    return "entries have file_name or hf_hub_url";
  return !probe.is_list && probe.has({"instruction", "output"}) ? "rows have instruction and output" : "";
}

/// A column or tag; `otherwise` if the entry does not say.
std::string name_of(std::optional<Object> names, std::string_view key, const std::string& otherwise) {
  if (!names) return otherwise;
  const auto value = find(*names, key);
  return value ? read_text(*value, std::string(key)) : otherwise;
}

std::vector<std::string> one_or_none(const std::string& name) {
  return name.empty() ? std::vector<std::string>{} : std::vector<std::string>{name};
}

std::string resolve_file(const std::string& path, Object entry) {
  const auto file = find(entry, "file_name");
  if (!file) throw Incomplete("the rows stand on a hub, expected \"file_name\" of a JSON file");
  const std::string name = read_text(*file, "file_name");
  if (!name.ends_with(".json") && !name.ends_with(".jsonl")) {
    throw Incomplete("file_name is " + in_quotes(name) + ", expected a .json or .jsonl file");
  }
  return listed_file(path, name);
}

Source resolve(const std::string& path, Object entry) {
  const auto ranking = find(entry, "ranking");
  if (ranking && ranking->is_bool() && ranking->get_bool().value()) {
    throw Incomplete("preference data (ranking) has two answers a row, expected rows of one");
  }
  const std::string formatting = name_of(entry, "formatting", "alpaca");
  if (formatting != "alpaca" && formatting != "sharegpt") {
    throw InvalidInput("formatting is " + in_quotes(formatting) + ", expected alpaca or sharegpt");
  }
  Source source;
  source.is_alpaca = formatting == "alpaca";
  std::optional<Object> columns, tags;
  if (const auto value = find(entry, "columns")) columns = read_object(*value, "columns");
  if (const auto value = find(entry, "tags")) tags = read_object(*value, "tags");
  source.alpaca.prompts = {name_of(columns, "prompt", "instruction"), name_of(columns, "query", "input"),
                           name_of(columns, "system", "system")};
  source.alpaca.response = name_of(columns, "response", "output");
  ConversationKeys& keys = source.conversation;
  keys.messages = name_of(columns, "messages", "conversations");
  keys.role = name_of(tags, "role_tag", "from");
  keys.content = name_of(tags, "content_tag", "value");
  keys.assistant = name_of(tags, "assistant_tag", "gpt");
  keys.images = one_or_none(name_of(columns, "images", ""));
  keys.videos = one_or_none(name_of(columns, "videos", ""));
  keys.audios = one_or_none(name_of(columns, "audios", ""));
  for (const char* column : {"system", "tools"}) {
    for (const std::string& name : one_or_none(name_of(columns, column, ""))) keys.texts.push_back(name);
  }
  if (const auto limit = find(entry, "num_samples")) {
    source.limit = read_integer(*limit, "num_samples", 1, 0xffffffffU);
  }
  source.file = resolve_file(path, entry);
  return source;
}

void read_alpaca(Object row, const AlpacaKeys& keys, const Import& import, Sample& sample) {
  Transcript transcript;
  for (const std::string& key : keys.prompts) {
    if (const auto text = find(row, key)) transcript.text(read_text(*text, key), false);
  }
  transcript.text(read_text(need(row, keys.response), keys.response), true);
  transcript.finish(import, sample);
}

void read_source(const std::string& name, const Source& source, Import& import) {
  const auto build = [&](Object row, Sample& sample) {
    if (source.is_alpaca) return read_alpaca(row, source.alpaca, import, sample);
    read_conversation(row, source.conversation, import, sample);
  };
  each_row(source.file, name, import, build, source.limit);
}

void read(const std::string& path, Import& import) {
  if (!probe(path).is_list) {
    return each_row(path, "llama-factory", import,
                    [&](Object row, Sample& sample) { read_alpaca(row, {}, import, sample); });
  }
  each_entry(
      path, import, [&](Object entry) { return resolve(path, entry); },
      [&](const std::string& name, const Source& source) { read_source(name, source, import); });
}

}  // namespace

const Importer llama_factory{"llama-factory", "LLaMA-Factory dataset_info.json, or alpaca rows (JSON, JSON Lines)",
                             "training", recognise, read};

}  // namespace orch::apps
