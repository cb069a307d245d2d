// One training example as a trace records it: sizes and durations only, no content.
//
// Units: pixels, microseconds, frames, tokens. A *unit* is what an encoder processes at once: an image, a clip.
// `tokens` replaces a model's token rules for the phase it names, where a source knows only counts. `order` says how
// text and units alternate in the LLM's sequence.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orch {

struct Image {
  std::uint32_t width = 0;   ///< pixels
  std::uint32_t height = 0;  ///< pixels
};

struct AudioClip {
  std::uint64_t microseconds = 0;
};

/// Known by its frames or by its duration; a size of 0 × 0 leaves the frame size to the model file.
struct VideoClip {
  std::uint32_t frames = 0;
  std::uint64_t microseconds = 0;
  Image size;
};

struct CountedUnit {
  std::uint32_t encoder_length = 0;         ///< tokens that the encoder processes
  std::optional<std::uint32_t> llm_length;  ///< tokens that the LLM sees; absent: the model's ratio decides
};

struct CountedUnits {
  std::string phase;  ///< "vision", "audio", …
  std::vector<CountedUnit> units;
};

/// A run of text tokens (`kind` is empty), or the next unit of a kind: "image", "video", "audio", or the name of a
/// phase whose units `tokens` gives.
struct Segment {
  std::uint32_t text = 0;
  std::string kind;
};

struct Sample {
  std::string id;
  std::string task;
  std::uint32_t text = 0;                   ///< text tokens
  std::optional<std::uint32_t> supervised;  ///< text tokens that bear loss; absent: all
  std::vector<Image> images;
  std::vector<AudioClip> audio;
  std::vector<VideoClip> video;
  std::vector<CountedUnits> tokens;
  std::vector<Segment> order;             ///< empty: all units, phase by phase in the model's order, then the text
  std::optional<double> arrival_seconds;  ///< inference traces
};

}  // namespace orch
