// Synthetic traces from profiles of format 1: tasks with weights, and a quantile table for every quantity of a task.
// Kept as it is for traces that must come out byte for byte; profile.hpp has format 2.
//
// A quantile table gives values at probabilities 0 … 1; a draw is the table at a uniform number, linear between points.
// `text_coupling` c of a modality: with probability c a sample's text length is drawn at the same probability as the
// modality's size, else independently; marginals stay exact and the rank correlation is c.
// Only additions, multiplications and square roots: the same trace, bit for bit, on every machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace orch::apps {

struct QuantileTable {
  std::vector<double> probability;  ///< ascending, from 0 to 1
  std::vector<double> value;
  [[nodiscard]] double at(double u) const;
};

struct ImageProfile {
  QuantileTable count;
  QuantileTable pixels;  ///< width · height
  QuantileTable aspect;  ///< width / height
  double text_coupling = 0;
};

struct AudioProfile {
  QuantileTable count;
  QuantileTable seconds;
  double text_coupling = 0;
};

/// Units of which a source knows only the encoder's token count.
struct CountedProfile {
  QuantileTable count;
  QuantileTable encoder;    ///< tokens
  std::uint32_t merge = 4;  ///< encoder tokens that become one LLM token
  double text_coupling = 0;
};

struct VideoProfile {
  QuantileTable count;
  QuantileTable frames;
  std::uint32_t width = 0;
  std::uint32_t height = 0;
};

struct TaskProfile {
  std::string name;
  double weight = 0;
  QuantileTable text;
  std::optional<ImageProfile> images;
  std::optional<AudioProfile> audio;
  std::optional<VideoProfile> video;
  std::optional<CountedProfile> vision_tokens;
};

struct Profile {
  std::string name;
  std::string source;
  std::string license;
  std::vector<TaskProfile> tasks;
};

/// Throws InvalidInput as FILE:LINE.
[[nodiscard]] Profile load_profile(const std::string& path);

/// Writes a trace (gzip if the name ends in .gz), whole or not at all.
void generate_trace(const Profile& profile, std::uint64_t samples, std::uint64_t seed, const std::string& path);

}  // namespace orch::apps
