// Small models and lengths for tests, and generators of them.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
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

/// An encoder of other encoders' outputs, of one plain layer.
inline Encoder derived_encoder(std::string phase, std::uint32_t pool, std::vector<std::string> feeds = {"llm"}) {
  return {std::move(phase), plain_layer(false), EncoderTokens{pool}, {1000, 1000, 1000}, 0, std::move(feeds)};
}

/// The plain model with a third encoder that merges: vision → fusion, audio → fusion and LLM, fusion → LLM.
inline Mllm fusion_model() {
  Mllm model = plain_model();
  model.encoders[0].feeds = {"fusion"};
  model.encoders[1].feeds = {"llm", "fusion"};
  model.encoders.push_back(derived_encoder("fusion", 10));
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

/// Any valid graph: up to three encoders with a raw input, up to three of other encoders' outputs.
inline Mllm any_graph_model() {
  Mllm model = plain_model();
  const std::vector<Encoder> raw = model.encoders;
  model.encoders.clear();
  const auto roots = *rc::gen::inRange<std::size_t>(1, 4);
  const auto count = roots + *rc::gen::inRange<std::size_t>(0, 4);
  for (std::size_t e = 0; e < count; ++e) {
    const std::string phase = "phase-" + std::to_string(e);
    if (e < roots) {
      model.encoders.push_back(*rc::gen::elementOf(raw));
      model.encoders.back().phase = phase;
    } else {
      model.encoders.push_back(derived_encoder(phase, *rc::gen::inRange<std::uint32_t>(1, 5)));
    }
    model.encoders.back().feeds.clear();
  }
  for (std::size_t e = 0; e < count; ++e) {
    std::vector<std::string>& feeds = model.encoders[e].feeds;
    for (std::size_t later = std::max(e + 1, roots); later < count; ++later) {
      if (*rc::gen::arbitrary<bool>()) feeds.push_back("phase-" + std::to_string(later));
    }
    if (feeds.empty() || *rc::gen::arbitrary<bool>()) feeds.emplace_back("llm");
    if (e < roots) continue;
    const auto feeds_this = [&](const Encoder& other) { return orch::feeds(other, model.encoders[e].phase); };
    if (std::none_of(model.encoders.begin(), model.encoders.end(), feeds_this)) {
      model.encoders[*rc::gen::inRange<std::size_t>(0, e)].feeds.push_back(model.encoders[e].phase);
    }
  }
  return model;
}

/// Any sample that `model` encodes, of raw inputs and counts, in any order or in none.
inline Sample any_ordered_sample(const Mllm& model) {
  Sample sample;
  sample.id = "any";
  sample.text = *rc::gen::inRange<std::uint32_t>(0, 1000);
  bool images = false;
  bool audio = false;
  std::vector<std::string> names;
  const auto units = [] { return *rc::gen::element<std::size_t>(0, 1, 2, 5); };
  for (const Encoder& encoder : model.encoders) {
    if (!has_raw_input(encoder)) continue;
    if (*rc::gen::arbitrary<bool>()) {
      sample.tokens.push_back({encoder.phase, std::vector<CountedUnit>(units())});
      for (CountedUnit& unit : sample.tokens.back().units) {
        unit.encoder_length = *rc::gen::inRange<std::uint32_t>(0, 3000);
        if (*rc::gen::arbitrary<bool>()) unit.llm_length = *rc::gen::inRange<std::uint32_t>(0, 800);
        names.push_back(encoder.phase);
      }
    } else {
      (std::holds_alternative<AudioFrames>(encoder.rule) ? audio : images) = true;
    }
  }
  if (images) {
    sample.images.resize(units(), {640, 480});
    sample.video.resize(units(), {.frames = 3, .microseconds = 0, .size = {}});
    names.insert(names.end(), sample.images.size(), "image");
    names.insert(names.end(), sample.video.size(), "video");
  }
  if (audio) {
    sample.audio.resize(units(), {2'000'000});
    names.insert(names.end(), sample.audio.size(), "audio");
  }
  if (*rc::gen::arbitrary<bool>()) return sample;
  std::uint32_t rest = sample.text;
  while (!names.empty()) {
    const auto run = *rc::gen::inRange<std::uint32_t>(0, rest + 1);
    if (*rc::gen::arbitrary<bool>()) sample.order.push_back({run, {}});
    if (!sample.order.empty() && sample.order.back().kind.empty()) rest -= sample.order.back().text;
    const auto pick = static_cast<std::ptrdiff_t>(*rc::gen::inRange<std::size_t>(0, names.size()));
    sample.order.push_back({0, names[static_cast<std::size_t>(pick)]});
    names.erase(names.begin() + pick);
  }
  if (rest > 0 || sample.order.empty()) sample.order.push_back({rest, {}});
  return sample;
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
