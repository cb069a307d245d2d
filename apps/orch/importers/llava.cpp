// LLaVA, Qwen-VL and ms-swift: rows of conversations with media, as a JSON array or JSON Lines. They differ in names
// only; a row of Qwen-VL may be a list of samples that are trained as one sequence.
// SPDX-License-Identifier: Apache-2.0
#include "conversation.hpp"
#include "formats.hpp"
#include "json_rows.hpp"

namespace orch::apps {

namespace {

void read_rows(const std::string& path, const std::string& task, const ConversationKeys& keys, Import& import) {
  each_row_value(path, task, import, [&](Value row, Sample& sample) {
    if (row.is_array()) return read_packed(row, keys, import, sample);
    read_conversation(read_object(row, "the record"), keys, import, sample);
  });
}

bool has_conversations(const Probe& probe) {
  return !probe.is_list && probe.has({"conversations", "conversations.value"}) && !probe.has({"conversations.type"});
}

bool is_qwen(const Probe& probe) { return probe.is_packed || probe.has({"images"}) || probe.has({"videos"}); }

std::string recognise_llava(const Probe& probe) {
  return has_conversations(probe) && !is_qwen(probe) ? "rows have conversations of from and value" : "";
}

std::string recognise_qwen(const Probe& probe) {
  if (!has_conversations(probe) || !is_qwen(probe)) return "";
  return probe.is_packed ? "rows are lists of conversations" : "rows have conversations, and images or videos";
}

std::string recognise_swift(const Probe& probe) {
  return !probe.is_list && probe.has({"messages", "messages.role"}) ? "rows have messages of role and content" : "";
}

void read_llava(const std::string& path, Import& import) { read_rows(path, "llava", {}, import); }
void read_qwen(const std::string& path, Import& import) { read_rows(path, "qwen-vl", {}, import); }
void read_swift(const std::string& path, Import& import) { read_rows(path, "ms-swift", message_keys(), import); }

}  // namespace

const Importer llava{"llava", "LLaVA conversations, also with InternVL's sizes (JSON, JSON Lines)", "training",
                     recognise_llava, read_llava};
const Importer qwen_vl{"qwen-vl", "Qwen-VL conversations, packed or not (JSON, JSON Lines)", "training", recognise_qwen,
                       read_qwen};
const Importer ms_swift{"ms-swift", "ms-swift messages (JSON Lines, JSON)", "training", recognise_swift, read_swift};

}  // namespace orch::apps
