// A sample as a line of a trace (docs/traces.md): what a scan can know of it, in the documented order of keys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "orchmllm/model/sample.hpp"

namespace orch::scan {

/// Exact: up to six decimals, no trailing zeros.
[[nodiscard]] inline std::string seconds_text(std::uint64_t microseconds) {
  std::string text = fmt::format("{}.{:06}", microseconds / 1'000'000, microseconds % 1'000'000);
  text.erase(text.find_last_not_of('0') + 1);
  return text.ends_with('.') ? text + "0" : text;
}

inline void append_line(std::string& out, const Sample& sample) {
  const auto list = [&out](const char* key, const auto& units, const auto& unit_text) {
    if (units.empty()) return;
    fmt::format_to(std::back_inserter(out), ",\"{}\":[", key);
    for (const auto& unit : units) out += unit_text(unit) + ",";
    out.back() = ']';
  };
  out += "{\"id\":" + nlohmann::json(sample.id).dump();
  if (!sample.task.empty()) out += ",\"task\":" + nlohmann::json(sample.task).dump();
  if (sample.text > 0) out += ",\"text\":" + std::to_string(sample.text);
  list("images", sample.images, [](const Image& image) { return fmt::format("[{},{}]", image.width, image.height); });
  list("audio", sample.audio, [](const AudioClip& clip) { return seconds_text(clip.microseconds); });
  list("video", sample.video, [](const VideoClip& clip) {
    return fmt::format(R"({{"seconds":{},"size":[{},{}]}})", seconds_text(clip.microseconds), clip.size.width,
                       clip.size.height);
  });
  out += "}\n";
}

}  // namespace orch::scan
