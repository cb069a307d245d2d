// Rows of conversations with media, as LLaVA, InternVL, Qwen-VL, ms-swift and LLaMA-Factory write them: turns in which
// <image>, <video> and <audio> stand for the entries of lists beside them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "importer.hpp"
#include "values.hpp"

namespace orch::apps {

/// How a format names things.
struct ConversationKeys {
  std::string messages = "conversations";
  std::string role = "from";
  std::string content = "value";
  std::string assistant;  ///< the role that is learnt; empty = the usual names
  std::vector<std::string> images{"image", "images"};
  std::vector<std::string> videos{"video", "videos"};
  std::vector<std::string> audios{"audio", "audios"};
  std::vector<std::string> texts;  ///< members that are text before the conversation, such as a system prompt
};

/// Keys of OpenAI's kind: messages, role, content.
[[nodiscard]] ConversationKeys message_keys();

/// Adds a row to a sample. Throws Incomplete where a size or duration is not known.
void read_conversation(Object row, const ConversationKeys& keys, const Import& import, Sample& sample);

/// Adds several rows that are trained as one sequence.
void read_packed(Value rows, const ConversationKeys& keys, const Import& import, Sample& sample);

}  // namespace orch::apps
