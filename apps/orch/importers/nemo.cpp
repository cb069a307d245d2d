// NeMo manifests, JSON Lines: ASR {"audio_filepath", "duration", "text"}, and multimodal conversations {"id",
// "conversations": [{"from", "value", "type": "text" or "audio", "duration"}]}.
// SPDX-License-Identifier: Apache-2.0
#include "formats.hpp"
#include "json_rows.hpp"
#include "transcript.hpp"

namespace orch::apps {

namespace {

std::string recognise(const Probe& probe) {
  if (probe.has({"audio_filepath", "duration"})) return "rows have audio_filepath and duration";
  return probe.has({"conversations.value", "conversations.type"}) ? "turns of conversations have a type" : "";
}

AudioClip read_clip(Object object, const Import& import) {
  if (const auto duration = find(object, "duration")) return {read_microseconds(*duration, "duration")};
  if (import.options.audio_seconds) return {microseconds(*import.options.audio_seconds, "--audio-seconds")};
  throw Incomplete("no duration, expected \"duration\" in seconds, --audio-seconds S");
}

void read_conversation(Value turns, const Import& import, Sample& sample) {
  Transcript transcript;
  for (const Value value : read_array(turns, "conversations")) {
    const Object turn = read_object(value, "a turn of conversations");
    const std::string type = read_text(need(turn, "type"), "type");
    if (type == "audio") {
      transcript.unit("audio");
      sample.audio.push_back(read_clip(turn, import));
    } else if (type == "text") {
      transcript.text(read_text(need(turn, "value"), "value"), is_assistant(read_name(turn, "from")));
    } else {
      throw InvalidInput("type is " + in_quotes(type) + ", expected text or audio");
    }
  }
  transcript.finish(import, sample);
}

void read(const std::string& path, Import& import) {
  each_row(path, "nemo", import, [&](Object row, Sample& sample) {
    sample.id = read_name(row, "id");
    if (const auto turns = find(row, "conversations")) return read_conversation(*turns, import, sample);
    sample.audio.push_back(read_clip(row, import));
    if (const auto text = find(row, "text")) sample.text = import.tokens(count_words(read_text(*text, "text")));
  });
}

}  // namespace

const Importer nemo{"nemo", "NeMo manifest: ASR or multimodal conversation (JSON Lines)", "training", recognise, read};

}  // namespace orch::apps
