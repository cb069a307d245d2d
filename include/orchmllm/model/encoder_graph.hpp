// Which encoder feeds which: a small directed graph whose edges lead from an encoder to later ones and to the LLM.
//
// An encoder with a raw input starts from images or clips; one with the rule EncoderTokens takes the outputs of the
// encoders that feed it, unit for unit. The model's order is a topological order, so one pass in it meets every
// producer before its consumers. Complexity: O(1) to O(encoders) a question, O(encoders² + edges · encoders) to check a
// model.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "orchmllm/base/error.hpp"
#include "orchmllm/model/architecture.hpp"

namespace orch {

/// The LLM's name among the phases.
inline constexpr std::string_view llm_phase = "llm";

[[nodiscard]] inline bool feeds(const Encoder& encoder, std::string_view phase) {
  return std::find(encoder.feeds.begin(), encoder.feeds.end(), phase) != encoder.feeds.end();
}

[[nodiscard]] inline bool feeds_llm(const Encoder& encoder) { return feeds(encoder, llm_phase); }

/// Whether an encoder starts from images or clips instead of other encoders' outputs.
[[nodiscard]] inline bool has_raw_input(const Encoder& encoder) {
  return !std::holds_alternative<EncoderTokens>(encoder.rule);
}

/// Width of the tokens that a phase takes from encoders; 0 for a name that is no phase.
[[nodiscard]] inline std::uint64_t input_width(const Mllm& model, std::string_view phase) {
  if (phase == llm_phase) return model.llm.hidden;
  for (const Encoder& encoder : model.encoders) {
    if (encoder.phase == phase) return encoder.transformer.hidden;
  }
  return 0;
}

/// Width of the tokens that leave an encoder: that of what it feeds.
[[nodiscard]] inline std::uint64_t output_width(const Mllm& model, const Encoder& encoder) {
  return encoder.feeds.empty() ? 0 : input_width(model, encoder.feeds.front());
}

/// What is wrong with a model: `key` of encoder number `encoder`, and why.
struct ModelFault {
  std::size_t encoder = 0;
  const char* key = "";
  std::string message;  ///< follows the key in a sentence
};

namespace detail {

/// The first encoder of that name, or the number of encoders.
[[nodiscard]] inline std::size_t encoder_named(const Mllm& model, std::string_view phase) {
  const auto found = std::find_if(model.encoders.begin(), model.encoders.end(),
                                  [&](const Encoder& encoder) { return encoder.phase == phase; });
  return static_cast<std::size_t>(found - model.encoders.begin());
}

/// Why encoder `producer` may not feed `target`; empty if it may.
[[nodiscard]] inline std::string wrong_target(const Mllm& model, std::size_t producer, const std::string& target) {
  const Encoder& encoder = model.encoders[producer];
  const std::string names = "names \"" + target + "\"";
  if (target != llm_phase) {
    const std::size_t consumer = encoder_named(model, target);
    if (consumer == model.encoders.size()) return names + ", expected llm or the phase of a later encoder";
    if (consumer == producer) return names + ", the encoder itself: expected llm or the phase of a later encoder";
    if (consumer < producer) return names + ", which stands before it: an encoder comes before those that it feeds";
    if (has_raw_input(model.encoders[consumer])) {
      return names + ", which takes a raw input: expected llm or an encoder with the rule encoder-tokens";
    }
  }
  if (std::count(encoder.feeds.begin(), encoder.feeds.end(), target) > 1) return names + " twice";
  if (input_width(model, target) != encoder.connector.output) {
    return names + " of width " + std::to_string(input_width(model, target)) + ", but the connector's output has " +
           std::to_string(encoder.connector.output) + ": all that an encoder feeds must have the same width";
  }
  return {};
}

/// What keeps a token rule from being applied: a divisor of zero. Empty if nothing does.
[[nodiscard]] inline std::string wrong_rule(const TokenRule& rule) {
  struct Divisor {
    const char* name;
    std::uint64_t value;
  };
  std::vector<Divisor> divisors;
  if (const auto* tiled = std::get_if<TiledImages>(&rule)) {
    divisors = {{"tile_px", tiled->tile_px}, {"patch_px", tiled->patch_px}, {"merge", tiled->merge}};
  } else if (const auto* native = std::get_if<NativeImages>(&rule)) {
    divisors = {{"patch_px", native->patch_px}, {"merge", native->merge}, {"temporal_patch", native->temporal_patch}};
  } else if (const auto* audio = std::get_if<AudioFrames>(&rule)) {
    divisors = {{"conv_stride", audio->conv_stride}, {"pool", audio->pool}};
    if (audio->conv_stride > 0 && audio->window_seconds > 0 && audio->window_tokens() == 0) {
      return "have windows of " + std::to_string(audio->window_seconds) + " s, which hold no token";
    }
  } else {
    divisors = {{"pool", std::get<EncoderTokens>(rule).pool}};
  }
  for (const Divisor& divisor : divisors) {
    if (divisor.value == 0) return std::string("have ") + divisor.name + " = 0, expected at least 1";
  }
  return {};
}

}  // namespace detail

/// The first fault of a model's encoders in their order; nothing if every token rule can be applied and each may run
/// before those that it feeds.
[[nodiscard]] inline std::optional<ModelFault> find_fault(const Mllm& model) {
  for (std::size_t e = 0; e < model.encoders.size(); ++e) {
    const Encoder& encoder = model.encoders[e];
    if (encoder.phase.empty() || encoder.phase == llm_phase || encoder.phase == "home") {
      return ModelFault{e, "phase", "must be a name other than llm and home"};
    }
    if (detail::encoder_named(model, encoder.phase) != e) {
      return ModelFault{e, "phase",
                        "is \"" + encoder.phase +
                            "\", which an earlier encoder has: every phase has a name"
                            " of its own"};
    }
    if (std::string message = detail::wrong_rule(encoder.rule); !message.empty()) {
      return ModelFault{e, "tokens", std::move(message)};
    }
    const auto feeds_this = [&](const Encoder& other) { return feeds(other, encoder.phase); };
    const bool fed = std::any_of(model.encoders.begin(), model.encoders.end(), feeds_this);
    if (!has_raw_input(encoder) && !fed) {
      return ModelFault{e, "tokens",
                        "take other encoders' outputs, but no encoder feeds \"" + encoder.phase +
                            "\": expected its name in an earlier encoder's feeds"};
    }
    if (encoder.feeds.empty()) {
      return ModelFault{e, "feeds", "is empty, expected llm or the phases of later encoders"};
    }
    for (const std::string& target : encoder.feeds) {
      std::string message = detail::wrong_target(model, e, target);
      if (!message.empty()) return ModelFault{e, "feeds", std::move(message)};
    }
  }
  return std::nullopt;
}

/// Throws InvalidInput, naming model and encoder, for encoders that cannot run in the model's order or whose token rule
/// divides by zero.
inline void validate(const Mllm& model) {
  if (const auto fault = find_fault(model)) {
    throw InvalidInput("model " + model.name + ", encoder " + std::to_string(fault->encoder + 1) + " (\"" +
                       model.encoders[fault->encoder].phase + "\"): " + fault->key + " " + fault->message);
  }
}

}  // namespace orch
