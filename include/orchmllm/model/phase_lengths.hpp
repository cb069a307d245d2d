// Phase lengths: what every sample of a trace weighs in every phase of a model.
//
// Compressed rows: an encoder phase holds the lengths of all units of all samples in one array. Lengths are tokens.
// Complexity: O(units) to build, 12 bytes a unit and 12 bytes a sample and phase.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/model/architecture.hpp"
#include "orchmllm/model/sample.hpp"
#include "orchmllm/model/sample_units.hpp"

namespace orch {

/// Lengths of one encoder's units, what they become, and where that stands.
struct EncoderLengths {
  std::vector<std::uint64_t> first{0};         ///< sample → index of its first unit; one more entry than samples
  std::vector<std::uint32_t> unit_length;      ///< unit → encoder tokens
  std::vector<std::uint32_t> unit_llm_length;  ///< unit → tokens that leave the encoder, to the LLM or elsewhere
  std::vector<std::uint32_t> unit_position;  ///< unit → place of its first token in the sample's LLM sequence, else 0
  std::vector<std::uint32_t> llm_length;     ///< sample → sum of its units' unit_llm_length

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
  std::vector<std::uint32_t> supervised;  ///< sample → text tokens that bear loss
  std::vector<std::uint32_t> llm_length;  ///< sample → LLM tokens: text and outputs of the encoders that feed the LLM

  [[nodiscard]] std::size_t samples() const { return text.size(); }
};

/// Appends one sample. Throws InvalidInput for a sample that the model cannot encode; nothing is appended then.
inline void append(PhaseLengths& lengths, const Mllm& model, const Sample& sample) {
  const std::uint32_t supervised = sample.supervised.value_or(sample.text);
  if (supervised > sample.text) {
    detail::refuse_sample(sample, "has " + std::to_string(supervised) + " supervised tokens, expected at most its " +
                                      std::to_string(sample.text) + " text tokens");
  }
  const SampleUnits units = sample_units(model, sample);

  lengths.encoders.resize(model.encoders.size());
  for (std::size_t e = 0; e < model.encoders.size(); ++e) {
    EncoderLengths& encoder = lengths.encoders[e];
    for (const SampleUnit& unit : units.of(e)) {
      encoder.unit_length.push_back(unit.length.encoder);
      encoder.unit_llm_length.push_back(unit.length.llm);
      encoder.unit_position.push_back(unit.position);
    }
    encoder.first.push_back(encoder.unit_length.size());
    encoder.llm_length.push_back(units.encoders[e].output);
  }
  lengths.text.push_back(sample.text);
  lengths.supervised.push_back(supervised);
  lengths.llm_length.push_back(units.llm_length);
}

}  // namespace orch
