// A profile of format 2 (docs/traces.md): tasks with weights, a law for every quantity, correlations between
// quantities.
//
// Quantities have names: "text", "supervised", "images.count", "images.pixels", "images.aspect", "audio.count",
// "audio.seconds", "video.count", "video.frames" or "video.seconds", "video.pixels", "video.aspect", and for counted
// units of a phase "tokens.PHASE.count", "tokens.PHASE.encoder", "tokens.PHASE.llm".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "copula.hpp"
#include "quantiles.hpp"

namespace orch::apps {

enum class UnitKind : std::uint8_t { image, audio, video_frames, video_seconds, counted };

/// Units of a kind in a sample of a task.
struct UnitLaws {
  UnitKind kind = UnitKind::image;
  std::string phase;  ///< of counted units
  Quantiles count;
  std::vector<Quantiles> sizes;  ///< image: pixels, aspect; audio: seconds; video: frames or seconds, or these, pixels,
                                 ///< aspect; counted: encoder, or encoder, llm
  std::uint32_t merge = 0;       ///< counted without llm: encoder tokens per LLM token; 0: the LLM length is null
  double alike = 0;              ///< correlation of further units with the sample's first one
};

struct Correlations {
  std::vector<std::size_t> quantities;  ///< indices into the task's quantities
  Matrix lower;                         ///< Cholesky factor of their correlation matrix
};

struct TaskLaws {
  std::string name;
  double weight = 0;
  Quantiles text;
  std::optional<Quantiles> supervised;  ///< share of the text
  double interleaved = 0;               ///< share of samples whose text stands between their units
  std::vector<UnitLaws> units;
  Correlations correlations;

  /// text, supervised (also if absent), then count and sizes of each kind of unit.
  [[nodiscard]] std::vector<std::string> quantity_names() const;
};

struct TaskProfiles {
  std::string name;
  std::string source;
  std::string license;
  std::vector<TaskLaws> tasks;
};

/// Smallest and largest value that a profile may give a quantity; whole numbers are rounded, so their laws may reach
/// half beyond them.
struct Limits {
  double low, high;
  bool whole;
};
[[nodiscard]] Limits limits_of(const std::string& quantity);

/// Quantities of a task at most.
inline constexpr std::size_t most_quantities = 64;

/// 1 for a file without `format`.
[[nodiscard]] std::uint64_t profile_format(const std::string& path);

/// Throws InvalidInput as FILE:LINE.
[[nodiscard]] TaskProfiles load_task_profiles(const std::string& path);

}  // namespace orch::apps
