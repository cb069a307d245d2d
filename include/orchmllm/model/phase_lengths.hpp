// Phase lengths: what every sample of a trace weighs in every phase of a model.
//
// Compressed rows: an encoder phase holds the lengths of all units of all samples in one array. Lengths are tokens.
// Complexity: O(units) to build, 4 bytes a unit and 12 bytes a sample and phase.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "orchmllm/model/architecture.hpp"
#include "orchmllm/model/sample.hpp"

namespace orch {

/// Lengths of one encoder's units, and the LLM tokens that a sample's units become.
struct EncoderLengths {
  std::vector<std::uint64_t> first{0};     ///< sample → index of its first unit; one more entry than samples
  std::vector<std::uint32_t> unit_length;  ///< unit → encoder tokens
  std::vector<std::uint32_t> llm_length;   ///< sample → LLM tokens of all its units

  [[nodiscard]] std::span<const std::uint32_t> units(std::size_t sample) const {
    return std::span(unit_length).subspan(first[sample], first[sample + 1] - first[sample]);
  }
  /// Encoder tokens of a sample.
  [[nodiscard]] std::uint64_t tokens(std::size_t sample) const {
    std::uint64_t sum = 0;
    for (const std::uint32_t length : units(sample)) sum += length;
    return sum;
  }
};

struct PhaseLengths {
  std::vector<EncoderLengths> encoders;   ///< in the model's order
  std::vector<std::uint32_t> text;        ///< sample → text tokens
  std::vector<std::uint32_t> llm_length;  ///< sample → LLM tokens: text and all encoders' outputs

  [[nodiscard]] std::size_t samples() const { return text.size(); }
};

namespace detail {

/// Lengths of the units of `sample` that `encoder` processes.
[[nodiscard]] inline std::vector<UnitLength> unit_lengths(const Encoder& encoder, const Sample& sample) {
  std::vector<UnitLength> lengths;
  for (const CountedUnits& counted : sample.tokens) {
    if (counted.phase != encoder.phase) continue;
    for (const CountedUnit& unit : counted.units) {
      const std::uint32_t llm = unit.llm_length.value_or(
          std::visit([&](const auto& rule) { return rule.llm_of(unit.encoder_length); }, encoder.rule));
      lengths.push_back({unit.encoder_length, llm});
    }
    return lengths;  // counts replace the model's rule
  }
  std::visit(
      [&](const auto& rule) {
        if constexpr (requires { rule.audio(AudioClip{}); }) {
          for (const AudioClip& clip : sample.audio) lengths.push_back(rule.audio(clip));
        } else {
          for (const Image& image : sample.images) lengths.push_back(rule.image(image));
          for (const VideoClip& clip : sample.video) lengths.push_back(rule.video(clip));
        }
      },
      encoder.rule);
  return lengths;
}

[[nodiscard]] inline bool encodes_audio(const Encoder& encoder) {
  return std::holds_alternative<AudioFrames>(encoder.rule);
}

/// Throws InvalidInput if the sample holds a unit that no encoder of the model takes.
inline void require_encoders(const Mllm& model, const Sample& sample) {
  const auto has = [&](auto&& accepts) { return std::any_of(model.encoders.begin(), model.encoders.end(), accepts); };
  const auto refuse = [&](const std::string& what) {
    throw InvalidInput("sample \"" + sample.id + "\" has " + what + ", but model " + model.name +
                       " has no encoder for it");
  };
  if (!sample.audio.empty() && !has(encodes_audio)) refuse("audio");
  const bool vision = !sample.images.empty() || !sample.video.empty();
  if (vision && !has([](const Encoder& e) { return !encodes_audio(e); })) refuse("images or video");
  for (const CountedUnits& counted : sample.tokens) {
    if (!has([&](const Encoder& e) { return e.phase == counted.phase; })) refuse("tokens of phase " + counted.phase);
  }
}

}  // namespace detail

/// Appends one sample. Throws InvalidInput for a unit that the model cannot encode; nothing is appended then.
inline void append(PhaseLengths& lengths, const Mllm& model, const Sample& sample) {
  detail::require_encoders(model, sample);
  std::vector<std::vector<UnitLength>> units;
  std::uint64_t llm = sample.text;
  for (const Encoder& encoder : model.encoders) {
    units.push_back(detail::unit_lengths(encoder, sample));
    for (const UnitLength& unit : units.back()) llm += unit.llm;
  }
  const std::uint32_t llm_length = detail::length32(llm, "a sample");

  lengths.encoders.resize(model.encoders.size());
  for (std::size_t e = 0; e < units.size(); ++e) {
    EncoderLengths& encoder = lengths.encoders[e];
    std::uint32_t output = 0;
    for (const UnitLength& unit : units[e]) {
      encoder.unit_length.push_back(unit.encoder);
      output += unit.llm;
    }
    encoder.first.push_back(encoder.unit_length.size());
    encoder.llm_length.push_back(output);
  }
  lengths.text.push_back(sample.text);
  lengths.llm_length.push_back(llm_length);
}

}  // namespace orch
