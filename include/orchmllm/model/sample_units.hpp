// The units of one sample in every encoder of a model, and where their tokens stand in the sample's LLM sequence.
//
// A unit with a raw input is a *root*; a unit that an encoder makes of another one's output keeps that one's root. The
// sample's order places roots among its text. All tokens that a root brings to the LLM stand together: its own first,
// then those derived from it in the model's order. Without an order the roots come phase by phase in the model's order,
// before the text.
// Units: tokens. Complexity: O(encoders² + units + segments · encoders). Throws InvalidInput for a sample that the
// model cannot encode, or whose order does not fit it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "orchmllm/model/architecture.hpp"
#include "orchmllm/model/encoder_graph.hpp"
#include "orchmllm/model/sample.hpp"

namespace orch {

/// One unit of a sample in one encoder.
struct SampleUnit {
  UnitLength length;
  std::uint32_t root = 0;      ///< number of the raw unit it comes from, over all encoders
  std::uint32_t position = 0;  ///< of its first token in the LLM's sequence; 0 where its encoder does not feed the LLM
};

/// All units of a sample, encoder by encoder.
struct SampleUnits {
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint32_t output = 0;  ///< tokens that leave the encoder
  };
  std::vector<SampleUnit> units;
  std::vector<Range> encoders;   ///< encoder → its units
  std::uint32_t llm_length = 0;  ///< tokens of the LLM's sequence: text and outputs of the encoders that feed the LLM

  [[nodiscard]] std::span<const SampleUnit> of(std::size_t encoder) const {
    return std::span(units).subspan(encoders[encoder].begin, encoders[encoder].end - encoders[encoder].begin);
  }
};

namespace detail {

/// Far above real data; paths through a graph of encoders multiply units.
inline constexpr std::size_t max_units_a_phase = std::size_t{1} << 20U;

[[noreturn]] inline void refuse_sample(const Sample& sample, const std::string& what) {
  throw InvalidInput("sample \"" + sample.id + "\" " + what);
}

[[nodiscard]] inline bool encodes_audio(const Encoder& encoder) {
  return std::holds_alternative<AudioFrames>(encoder.rule);
}

[[nodiscard]] inline bool encodes_images(const Encoder& encoder) {
  return has_raw_input(encoder) && !encodes_audio(encoder);
}

/// The counts that replace an encoder's rule for a sample, if any.
[[nodiscard]] inline const CountedUnits* counts_of(const Sample& sample, const Encoder& encoder) {
  for (const CountedUnits& counted : sample.tokens) {
    if (counted.phase == encoder.phase) return &counted;
  }
  return nullptr;
}

/// Throws InvalidInput if the sample holds a unit that no encoder of the model takes.
inline void require_encoders(const Mllm& model, const Sample& sample) {
  const auto has = [&](auto&& accepts) { return std::any_of(model.encoders.begin(), model.encoders.end(), accepts); };
  const auto refuse = [&](const std::string& what) {
    refuse_sample(sample, "has " + what + ", but model " + model.name + " has no encoder for it");
  };
  if (!sample.audio.empty() && !has(encodes_audio)) refuse("audio");
  const bool vision = !sample.images.empty() || !sample.video.empty();
  if (vision && !has(encodes_images)) refuse("images or video");
  for (const CountedUnits& counted : sample.tokens) {
    const auto named = [&](const Encoder& encoder) { return encoder.phase == counted.phase; };
    const auto found = std::find_if(model.encoders.begin(), model.encoders.end(), named);
    if (found == model.encoders.end()) refuse("tokens of phase " + counted.phase);
    if (!has_raw_input(*found)) {
      refuse_sample(sample, "has tokens of phase " + counted.phase + ", but in model " + model.name +
                                " that phase takes other encoders' outputs");
    }
  }
}

/// Lengths of the units that an encoder with a raw input processes.
inline void add_raw_units(const Encoder& encoder, const Sample& sample, std::uint32_t& roots,
                          std::vector<SampleUnit>& units) {
  const auto add = [&](UnitLength length) { units.push_back({length, roots++}); };
  std::visit(
      [&](const auto& rule) {
        if (const CountedUnits* counted = counts_of(sample, encoder)) {
          units.reserve(units.size() + counted->units.size());
          for (const CountedUnit& unit : counted->units)
            add({unit.encoder_length, unit.llm_length.value_or(rule.llm_of(unit.encoder_length))});
        } else if constexpr (requires { rule.audio(AudioClip{}); }) {
          for (const AudioClip& clip : sample.audio) add(rule.audio(clip));
        } else if constexpr (requires { rule.image(Image{}); }) {
          for (const Image& image : sample.images) add(rule.image(image));
          for (const VideoClip& clip : sample.video) add(rule.video(clip));
        }
      },
      encoder.rule);
}

/// Units of encoder number `consumer`, one for every unit of the encoders that feed it.
inline void add_derived_units(const Mllm& model, std::size_t consumer, const Sample& sample, SampleUnits& all) {
  const Encoder& encoder = model.encoders[consumer];
  const auto& rule = std::get<EncoderTokens>(encoder.rule);
  const std::size_t begin = all.units.size();
  for (std::size_t producer = 0; producer < consumer; ++producer) {
    if (!feeds(model.encoders[producer], encoder.phase)) continue;
    const SampleUnits::Range made = all.encoders[producer];
    if (all.units.size() - begin + made.end - made.begin > max_units_a_phase) {
      refuse_sample(sample, "has more than " + std::to_string(max_units_a_phase) + " units in phase " + encoder.phase);
    }
    for (std::size_t i = made.begin; i < made.end; ++i) {
      const std::uint32_t length = all.units[i].length.llm;
      all.units.push_back({{length, rule.llm_of(length)}, all.units[i].root});
    }
  }
}

/// Roots of one kind in one encoder, in the order in which a sample's `order` takes them.
struct RootRun {
  std::string_view kind;
  std::uint32_t next = 0;
  std::uint32_t end = 0;
};

/// What the names in `order` stand for: the model's phases where counts are given, else kinds of raw inputs.
[[nodiscard]] inline std::vector<RootRun> root_runs(const Mllm& model, const Sample& sample) {
  std::vector<RootRun> runs;
  std::uint32_t roots = 0;
  const auto add = [&](std::string_view kind, std::size_t units) {
    const auto end = static_cast<std::uint32_t>(roots + units);
    runs.push_back({kind, roots, end});
    roots = end;
  };
  for (const Encoder& encoder : model.encoders) {
    if (!has_raw_input(encoder)) continue;
    if (const CountedUnits* counted = counts_of(sample, encoder)) {
      add(counted->phase, counted->units.size());
    } else if (encodes_audio(encoder)) {
      add("audio", sample.audio.size());
    } else {
      add("image", sample.images.size());
      add("video", sample.video.size());
    }
  }
  return runs;
}

/// Turns the LLM tokens of every root into the place of its first one, along the sample's order.
inline void place_along_order(const Mllm& model, const Sample& sample, std::vector<std::uint64_t>& roots) {
  std::vector<RootRun> runs = root_runs(model, sample);
  std::uint64_t place = 0;
  std::uint64_t text = 0;
  for (const Segment& segment : sample.order) {
    if (segment.kind.empty()) {
      place += segment.text;
      text += segment.text;
      continue;
    }
    bool taken = false;
    for (RootRun& run : runs) {
      if (run.kind != segment.kind || run.next == run.end) continue;
      place += std::exchange(roots[run.next++], place);
      taken = true;
    }
    if (!taken) {
      refuse_sample(sample, "names \"" + segment.kind + "\" in its order, but model " + model.name +
                                " has no further unit of that kind");
    }
  }
  for (const RootRun& run : runs) {
    if (run.next == run.end) continue;
    refuse_sample(sample, "has units of kind \"" + std::string(run.kind) + "\" that its order does not name");
  }
  if (text != sample.text) {
    refuse_sample(
        sample, "has an order with " + std::to_string(text) + " text tokens, expected " + std::to_string(sample.text));
  }
}

/// Gives the units that feed the LLM their positions, which fit into 32 bits as the sample's LLM length does.
inline void place_units(const Mllm& model, const Sample& sample, std::uint32_t roots, SampleUnits& all) {
  const auto each_llm_unit = [&](auto&& visit) {
    for (std::size_t e = 0; e < model.encoders.size(); ++e) {
      if (!feeds_llm(model.encoders[e])) continue;
      for (std::size_t i = all.encoders[e].begin; i < all.encoders[e].end; ++i) visit(all.units[i]);
    }
  };
  std::vector<std::uint64_t> place(roots, 0);  // root → its LLM tokens, then where the next one of them stands
  each_llm_unit([&](const SampleUnit& unit) { place[unit.root] += unit.length.llm; });
  if (sample.order.empty()) {
    std::exclusive_scan(place.begin(), place.end(), place.begin(), std::uint64_t{0});
  } else {
    place_along_order(model, sample, place);
  }
  each_llm_unit([&](SampleUnit& unit) {
    unit.position = static_cast<std::uint32_t>(place[unit.root]);
    place[unit.root] += unit.length.llm;
  });
}

}  // namespace detail

/// All units of a sample, with lengths and positions.
[[nodiscard]] inline SampleUnits sample_units(const Mllm& model, const Sample& sample) {
  detail::require_encoders(model, sample);
  SampleUnits all;
  all.encoders.reserve(model.encoders.size());
  all.units.reserve(sample.images.size() + sample.video.size() + sample.audio.size());
  std::uint32_t roots = 0;
  std::uint64_t llm = sample.text;
  for (std::size_t e = 0; e < model.encoders.size(); ++e) {
    const std::size_t begin = all.units.size();
    if (has_raw_input(model.encoders[e])) {
      detail::add_raw_units(model.encoders[e], sample, roots, all.units);
    } else {
      detail::add_derived_units(model, e, sample, all);
    }
    std::uint64_t output = 0;
    for (std::size_t i = begin; i < all.units.size(); ++i) output += all.units[i].length.llm;
    all.encoders.push_back({begin, all.units.size(), detail::length32(output, "a sample")});
    if (feeds_llm(model.encoders[e])) llm += output;
  }
  all.llm_length = detail::length32(llm, "a sample");
  detail::place_units(model, sample, roots, all);
  return all;
}

}  // namespace orch
