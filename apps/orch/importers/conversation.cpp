#include "conversation.hpp"

#include <fmt/format.h>

#include "transcript.hpp"

namespace orch::apps {

namespace {

/// How many units a row lists under any of `names`: one path or object, or a list of them.
std::uint64_t count_units(Object row, const std::vector<std::string>& names) {
  std::uint64_t count = 0;
  for (const std::string& name : names) {
    const auto value = find(row, name);
    if (!value) continue;
    if (value->is_array()) {
      count += read_array(*value, name).size();
    } else if (value->is_string()) {
      count += read_text(*value, name).empty() ? 0 : 1;
    } else if (value->is_object()) {
      ++count;
    } else {
      throw InvalidInput(name + " is " + shown(*value) + ", expected a path or a list of paths");
    }
  }
  return count;
}

std::uint32_t read_side(Value value, const std::string& what) {
  return read_integer(value, what, 1, io::detail::max_pixels_a_side);
}

/// Sizes as InternVL has them: width and height, or width_list and height_list. Empty if the row has none.
std::vector<Image> read_sizes(Object row) {
  std::vector<Image> sizes;
  const auto widths = find(row, "width_list");
  const auto heights = find(row, "height_list");
  if (widths && heights) {
    const auto wide = read_array(*widths, "width_list");
    const auto high = read_array(*heights, "height_list");
    if (wide.size() != high.size()) {
      throw InvalidInput(
          fmt::format("{} entries in width_list, {} in height_list, expected as many", wide.size(), high.size()));
    }
    auto height = high.begin();
    for (const Value width : wide) {
      sizes.push_back({read_side(width, "width_list"), read_side(*height, "height_list")});
      ++height;
    }
    return sizes;
  }
  const auto width = find(row, "width");
  const auto height = find(row, "height");
  if (width && height) sizes.push_back({read_side(*width, "width"), read_side(*height, "height")});
  return sizes;
}

void add_images(Object row, std::uint64_t count, const Import& import, Sample& sample) {
  if (count == 0) return;
  std::vector<Image> sizes = read_sizes(row);
  if (sizes.empty() && import.options.image_size) sizes.assign(count, *import.options.image_size);
  if (sizes.empty()) {
    throw Incomplete(fmt::format(
        "{} images without sizes, expected width and height (width_list and height_list), --image-size WxH", count));
  }
  if (sizes.size() != count) {
    throw InvalidInput(fmt::format("{} sizes, expected {}, one for each image", sizes.size(), count));
  }
  sample.images.insert(sample.images.end(), sizes.begin(), sizes.end());
}

void add_clips(Object row, const ConversationKeys& keys, const Import& import, Sample& sample) {
  const std::uint64_t videos = count_units(row, keys.videos);
  const std::uint64_t audios = count_units(row, keys.audios);
  if (videos > 0 && !import.options.video_seconds) {
    throw Incomplete(fmt::format("{} videos without durations, expected --video-seconds S", videos));
  }
  if (audios > 0 && !import.options.audio_seconds) {
    throw Incomplete(fmt::format("{} audio clips without durations, expected --audio-seconds S", audios));
  }
  for (std::uint64_t i = 0; i < videos; ++i) {
    sample.video.push_back({0, microseconds(*import.options.video_seconds, "--video-seconds"), {}});
  }
  for (std::uint64_t i = 0; i < audios; ++i) {
    sample.audio.push_back({microseconds(*import.options.audio_seconds, "--audio-seconds")});
  }
}

/// A part of a message in OpenAI's form: {"type": "text", "text": …} or {"type": "image", …}.
void add_part(Value value, bool supervised, Transcript& transcript) {
  const Object part = read_object(value, "a part of a message");
  const std::string type = read_text(need(part, "type"), "type");
  if (type == "text") return transcript.tagged_text(read_text(need(part, "text"), "text"), supervised);
  for (const std::string_view kind : {"image", "video", "audio"}) {
    if (type == kind || type == std::string(kind) + "_url") return transcript.unit(kind);
  }
  throw InvalidInput("a part of a message has the type " + in_quotes(type) + ", expected text, image, video or audio");
}

void add_turns(Object row, const ConversationKeys& keys, Transcript& transcript) {
  for (const std::string& name : keys.texts) {
    const auto text = find(row, name);
    if (text) transcript.tagged_text(text->is_string() ? read_text(*text, name) : simdjson::minify(*text), false);
  }
  for (const Value value : read_array(need(row, keys.messages), keys.messages)) {
    const Object turn = read_object(value, "a turn of " + keys.messages);
    const std::string role = read_text(need(turn, keys.role), keys.role);
    const bool learnt = keys.assistant.empty() ? is_assistant(role) : role == keys.assistant;
    const auto content = find(turn, keys.content);
    if (!content) continue;  // a call of a tool may stand without words
    if (content->is_array()) {
      for (const Value part : read_array(*content, keys.content)) add_part(part, learnt, transcript);
    } else {
      transcript.tagged_text(read_text(*content, keys.content), learnt);
    }
  }
}

/// A kind's units stand where its tags are; without any tag, before the row's text. Else tags and lists must agree.
void place_units(std::string_view kind, std::uint64_t units, const Transcript& turns, Transcript& transcript) {
  const std::size_t tags = turns.units(kind);
  if (tags == units) return;
  if (tags > 0) {
    throw InvalidInput(fmt::format("{} tags <{}>, but {} in the row's list, expected as many", tags, kind, units));
  }
  for (std::uint64_t i = 0; i < units; ++i) transcript.unit(kind);
}

void add_row(Object row, const ConversationKeys& keys, const Import& import, Transcript& transcript, Sample& sample) {
  Transcript turns;
  add_turns(row, keys, turns);
  const std::uint64_t images = count_units(row, keys.images);
  place_units("image", images, turns, transcript);
  place_units("video", count_units(row, keys.videos), turns, transcript);
  place_units("audio", count_units(row, keys.audios), turns, transcript);
  transcript.append(turns);
  add_images(row, images, import, sample);
  add_clips(row, keys, import, sample);
}

}  // namespace

ConversationKeys message_keys() {
  ConversationKeys keys;
  keys.messages = "messages";
  keys.role = "role";
  keys.content = "content";
  return keys;
}

void read_conversation(Object row, const ConversationKeys& keys, const Import& import, Sample& sample) {
  sample.id = read_name(row, "id");
  Transcript transcript;
  add_row(row, keys, import, transcript, sample);
  transcript.finish(import, sample);
}

void read_packed(Value rows, const ConversationKeys& keys, const Import& import, Sample& sample) {
  Transcript transcript;
  for (const Value row : read_array(rows, "the packed row")) {
    add_row(read_object(row, "a sample of the packed row"), keys, import, transcript, sample);
  }
  transcript.finish(import, sample);
}

}  // namespace orch::apps
