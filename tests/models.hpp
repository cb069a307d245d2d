// Small models and lengths for tests, and generators of them.
#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <string>
#include <vector>

#include "orchmllm/model/phase_lengths.hpp"

namespace orch::test {

/// One layer of width 1,000: 6,000,000 matrix elements, so that operations can be followed by hand.
inline Transformer plain_layer(bool causal) {
  return {.layers = 1, .hidden = 1000, .heads = 1, .kv_heads = 1, .head_dim = 1000, .ffn = 1000, .causal = causal};
}

/// Vision and audio encoders and an LLM, all of one plain layer. Tiles hold 10,000 patches: one attention block a unit.
inline Mllm plain_model() {
  Mllm model{"plain", {}, plain_layer(true)};
  model.llm.vocab = 1000;
  Encoder vision{"vision", plain_layer(false), TiledImages{.tile_px = 1400, .class_tokens = 0}, {4000, 1000, 1000}, 3};
  Encoder audio{"audio", plain_layer(false), AudioFrames{}, {1000, 1000, 1000}, 128};
  model.encoders = {vision, audio};
  return model;
}

/// A sample with given counts: [encoder, LLM] per image and per clip.
inline Sample counted(std::uint32_t text, std::vector<CountedUnit> vision = {}, std::vector<CountedUnit> audio = {}) {
  Sample sample;
  sample.id = "s";
  sample.text = text;
  if (!vision.empty()) sample.tokens.push_back({"vision", std::move(vision)});
  if (!audio.empty()) sample.tokens.push_back({"audio", std::move(audio)});
  return sample;
}

inline PhaseLengths lengths_of(const Mllm& model, const std::vector<Sample>& samples) {
  PhaseLengths lengths;
  lengths.encoders.resize(model.encoders.size());
  for (const Sample& sample : samples) append(lengths, model, sample);
  return lengths;
}

/// Any samples: text only, images, clips, all together, empty.
inline std::vector<Sample> any_samples(std::size_t count) {
  const auto units = [] {
    std::vector<CountedUnit> list(*rc::gen::element<std::size_t>(0, 0, 1, 1, 2, 5));
    for (CountedUnit& unit : list) {
      unit.encoder_length = *rc::gen::inRange<std::uint32_t>(0, 3000);
      if (*rc::gen::arbitrary<bool>()) unit.llm_length = *rc::gen::inRange<std::uint32_t>(0, 800);
    }
    return list;
  };
  std::vector<Sample> samples;
  for (std::size_t i = 0; i < count; ++i) {
    samples.push_back(counted(*rc::gen::inRange<std::uint32_t>(0, 2000), units(), units()));
  }
  return samples;
}

}  // namespace orch::test
