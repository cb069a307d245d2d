// The shape of a multimodal LLM: encoders with a connector after each, and an LLM backbone.
//
// Most encoders take raw inputs and feed the LLM. An encoder may also feed encoders that stand behind it in the model
// (encoder_graph.hpp). Plain numbers, usually read from a model file. Lengths are tokens, widths are elements.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "orchmllm/model/token_rules.hpp"

namespace orch {

struct Transformer {
  std::uint64_t layers = 0;
  std::uint64_t hidden = 0;
  std::uint64_t heads = 0;
  std::uint64_t kv_heads = 0;
  std::uint64_t head_dim = 0;
  std::uint64_t ffn = 0;
  bool gated_mlp = false;  ///< three matrices (SwiGLU) instead of two
  bool qkv_bias = false;
  bool linear_bias = false;  ///< biases on the output projection and the MLP, and on the norms (LayerNorm)
  bool causal = false;
  std::uint64_t vocab = 0;  ///< 0: no embedding and no output head
  bool tied_embeddings = false;
};

/// Two-layer MLP from merged encoder outputs to the width of what the encoder feeds.
struct Connector {
  std::uint64_t input = 0;
  std::uint64_t hidden = 0;
  std::uint64_t output = 0;
};

using TokenRule = std::variant<TiledImages, NativeImages, AudioFrames, EncoderTokens>;

struct Encoder {
  std::string phase;  ///< "vision", "audio"
  Transformer transformer;
  TokenRule rule;
  Connector connector;
  /// Input channels: 3 for pixels, mel bands for audio, 0 for an encoder of other encoders' outputs.
  std::uint64_t input_channels = 0;
  std::vector<std::string> feeds{"llm"};  ///< phases of later encoders, "llm"
};

struct Mllm {
  std::string name;
  std::vector<Encoder> encoders;  ///< in the order in which a step runs them
  Transformer llm;
};

/// Tokens that attend to one another in an encoder: a tile, an audio window; 0 = a whole unit.
[[nodiscard]] inline std::uint64_t attention_span(const TokenRule& rule) {
  if (const auto* tiled = std::get_if<TiledImages>(&rule)) return tiled->tile_tokens();
  if (const auto* audio = std::get_if<AudioFrames>(&rule)) return audio->window_tokens();
  return 0;
}

}  // namespace orch
