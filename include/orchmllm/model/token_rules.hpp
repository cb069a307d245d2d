// Token rules: from an image's, clip's or video's size to the length an encoder processes and the length the LLM sees.
//
//   TiledImages   InternVL: tiles of one size in the grid with the closest aspect ratio, plus a thumbnail
//   NativeImages  Qwen2-VL: native resolution, rounded to a grid of merged patches, within pixel bounds
//   AudioFrames   Whisper / Qwen2-Audio: mel frames, strided convolution, pooled
//   EncoderTokens no raw input: the outputs of other encoders, unit for unit, pooled
//
// Lengths are tokens. Complexity: O(max_tiles²) for a tiled image, O(1) otherwise. Throws InvalidInput for sizes that a
// rule cannot encode. Square roots are IEEE exact-rounded, so lengths agree on every machine.
// Sources: InternVL (arXiv 2404.16821), Qwen2-VL (arXiv 2409.12191), Whisper (arXiv 2212.04356), Qwen2-Audio
// (arXiv 2407.10759) and their published preprocessor configurations.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/error.hpp"
#include "orchmllm/model/sample.hpp"

namespace orch {

struct UnitLength {
  std::uint32_t encoder = 0;  ///< tokens in the encoder
  std::uint32_t llm = 0;      ///< tokens that leave the encoder: tokens in the LLM where it feeds the LLM
};

namespace detail {

[[nodiscard]] inline std::uint32_t length32(std::uint64_t length, const char* what) {
  if (length > std::numeric_limits<std::uint32_t>::max()) {
    throw InvalidInput(std::string(what) + " of " + std::to_string(length) + " tokens: at most 4294967295");
  }
  return static_cast<std::uint32_t>(length);
}

}  // namespace detail

struct TiledImages {
  std::uint32_t tile_px = 448;
  std::uint32_t patch_px = 14;
  std::uint32_t merge = 2;  ///< per side: merge² encoder tokens become one LLM token
  std::uint32_t max_tiles = 12;
  bool thumbnail = true;           ///< one more tile with the whole image, if it has more than one
  std::uint32_t class_tokens = 1;  ///< encoder tokens a tile beside its patches
  double video_fps = 1.0;          ///< frames taken a second where only a duration is known
  std::uint32_t video_max_frames = 64;

  [[nodiscard]] std::uint32_t patches_per_tile() const { return (tile_px / patch_px) * (tile_px / patch_px); }

  /// Encoder tokens that attend to one another.
  [[nodiscard]] std::uint32_t tile_tokens() const { return patches_per_tile() + class_tokens; }

  /// Tiles of an image, without the thumbnail: the grid i × j ≤ max_tiles whose aspect ratio is closest; among equal
  /// ratios the larger grid if the image covers more than half of its pixels.
  [[nodiscard]] std::uint32_t tiles(const Image& image) const {
    const double aspect = static_cast<double>(image.width) / static_cast<double>(image.height);
    const double area = static_cast<double>(image.width) * static_cast<double>(image.height);
    double best_difference = std::numeric_limits<double>::infinity();
    std::uint32_t best = 1;
    for (std::uint32_t count = 1; count <= max_tiles; ++count) {
      for (std::uint32_t columns = 1; columns <= count; ++columns) {
        if (count % columns != 0) continue;
        const double difference =
            std::abs(aspect - static_cast<double>(columns) / static_cast<double>(count / columns));
        const double half = 0.5 * static_cast<double>(tile_px) * static_cast<double>(tile_px) * count;
        if (difference < best_difference || (difference == best_difference && area > half)) {
          best_difference = difference;
          best = count;
        }
      }
    }
    return best;
  }

  [[nodiscard]] UnitLength image(const Image& image) const {
    const std::uint32_t grid = tiles(image);
    return of_tiles(grid + (thumbnail && grid > 1 ? 1 : 0));
  }

  /// One tile a frame.
  [[nodiscard]] UnitLength video(const VideoClip& clip) const {
    std::uint64_t frames = clip.frames;
    if (frames == 0)
      frames = static_cast<std::uint64_t>(std::ceil(static_cast<double>(clip.microseconds) * 1e-6 * video_fps));
    return of_tiles(std::clamp<std::uint64_t>(frames, 1, video_max_frames));
  }

  [[nodiscard]] std::uint32_t llm_of(std::uint32_t encoder) const {
    return static_cast<std::uint32_t>(ceil_div(encoder, std::uint64_t{merge} * merge));
  }

 private:
  [[nodiscard]] UnitLength of_tiles(std::uint64_t count) const {
    return {detail::length32(count * tile_tokens(), "an image"),
            detail::length32(count * (patches_per_tile() / (merge * merge)), "an image")};
  }
};

struct NativeImages {
  std::uint32_t patch_px = 14;
  std::uint32_t merge = 2;
  std::uint64_t min_pixels = 3136;
  std::uint64_t max_pixels = 12845056;
  std::uint32_t marker_tokens = 2;  ///< LLM tokens around an image (start, end)
  double max_aspect = 200;
  double video_fps = 2.0;
  std::uint32_t temporal_patch = 2;             ///< frames that share one grid
  std::uint64_t video_min_pixels = 100352;      ///< a frame: 128 · 28²
  std::uint64_t video_max_pixels = 602112;      ///< a frame: 768 · 28²
  std::uint64_t video_total_pixels = 12845056;  ///< all grids of a video together: 16,384 LLM tokens
  Image video_size{448, 448};                   ///< assumed where a trace gives no frame size

  /// Patches of an image after rounding to the grid.
  [[nodiscard]] std::uint64_t patches(const Image& image, std::uint64_t low, std::uint64_t high) const {
    const double width = image.width;
    const double height = image.height;
    if (std::max(width, height) > max_aspect * std::min(width, height)) {
      throw InvalidInput("an image of " + std::to_string(image.width) + " x " + std::to_string(image.height) +
                         " pixels: the aspect ratio must stay below " + std::to_string(max_aspect));
    }
    const double factor = patch_px * merge;
    double columns = std::max(1.0, std::nearbyint(width / factor));
    double rows = std::max(1.0, std::nearbyint(height / factor));
    const double pixels = columns * rows * factor * factor;
    if (pixels > static_cast<double>(high)) {
      const double shrink = std::sqrt(width * height / static_cast<double>(high));
      columns = std::max(1.0, std::floor(width / shrink / factor));
      rows = std::max(1.0, std::floor(height / shrink / factor));
    } else if (pixels < static_cast<double>(low)) {
      const double grow = std::sqrt(static_cast<double>(low) / (width * height));
      columns = std::ceil(width * grow / factor);
      rows = std::ceil(height * grow / factor);
    }
    return static_cast<std::uint64_t>(columns * rows) * merge * merge;
  }

  [[nodiscard]] UnitLength image(const Image& image) const {
    const std::uint64_t count = patches(image, min_pixels, max_pixels);
    return {detail::length32(count, "an image"), detail::length32(count / (merge * merge) + marker_tokens, "an image")};
  }

  [[nodiscard]] UnitLength video(const VideoClip& clip) const {
    std::uint64_t frames = clip.frames;
    if (frames == 0)
      frames = static_cast<std::uint64_t>(std::ceil(static_cast<double>(clip.microseconds) * 1e-6 * video_fps));
    const std::uint64_t grids = std::max<std::uint64_t>(1, ceil_div(frames, temporal_patch));
    const std::uint64_t high = std::max(video_min_pixels, std::min(video_max_pixels, video_total_pixels / grids));
    const std::uint64_t count = grids * patches(clip.size.width > 0 ? clip.size : video_size, video_min_pixels, high);
    return {detail::length32(count, "a video"), detail::length32(count / (merge * merge) + marker_tokens, "a video")};
  }

  [[nodiscard]] std::uint32_t llm_of(std::uint32_t encoder) const {
    return static_cast<std::uint32_t>(ceil_div(encoder, std::uint64_t{merge} * merge));
  }
};

struct AudioFrames {
  std::uint32_t frames_per_second = 100;  ///< mel frames
  std::uint32_t conv_stride = 2;
  std::uint32_t pool = 2;             ///< encoder tokens that become one LLM token
  std::uint32_t window_seconds = 30;  ///< attention stays inside a window; 0 = the whole clip
  bool pad_to_window = false;         ///< Whisper's published use pads every clip to whole windows

  [[nodiscard]] std::uint32_t window_tokens() const { return window_seconds * frames_per_second / conv_stride; }

  [[nodiscard]] UnitLength audio(const AudioClip& clip) const {
    // Floor of frames without overflow: whole seconds and the rest apart.
    const std::uint64_t frames = clip.microseconds / 1'000'000 * frames_per_second +
                                 clip.microseconds % 1'000'000 * frames_per_second / 1'000'000;
    std::uint64_t tokens = std::max<std::uint64_t>(1, ceil_div(frames, conv_stride));
    if (pad_to_window && window_seconds > 0) tokens = ceil_div(tokens, window_tokens()) * window_tokens();
    return {detail::length32(tokens, "a clip"), detail::length32(std::max<std::uint64_t>(1, tokens / pool), "a clip")};
  }

  [[nodiscard]] std::uint32_t llm_of(std::uint32_t encoder) const {
    return static_cast<std::uint32_t>(ceil_div(encoder, pool));
  }
};

struct EncoderTokens {
  std::uint32_t pool = 1;  ///< encoder tokens that become one output token

  [[nodiscard]] std::uint32_t llm_of(std::uint32_t encoder) const {
    return static_cast<std::uint32_t>(ceil_div(encoder, pool));
  }
};

}  // namespace orch
