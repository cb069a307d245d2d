// Parameters, floating-point operations and bytes of a multimodal LLM's parts.
//
// A multiply-add is two operations. Forward only; a backward pass of a trained part is twice that. Causal attention
// counts half of the square (what a causal kernel computes). Norms, activations and rotary embeddings are not matrix
// work and are left out, as in every published count.
// Complexity: O(1). Sources: Megatron-LM (arXiv 2104.04473, appendix) for the count; model papers for the shapes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "orchmllm/model/architecture.hpp"
#include "orchmllm/model/encoder_graph.hpp"

namespace orch {

/// Elements of the weight matrices of one layer.
[[nodiscard]] inline std::uint64_t layer_matrix_parameters(const Transformer& t) {
  const std::uint64_t query = t.heads * t.head_dim;
  const std::uint64_t key_value = 2 * t.kv_heads * t.head_dim;
  return t.hidden * (query + key_value) + query * t.hidden + (t.gated_mlp ? 3 : 2) * t.hidden * t.ffn;
}

/// All parameters of one layer, biases and norms included.
[[nodiscard]] inline std::uint64_t layer_parameters(const Transformer& t) {
  const std::uint64_t qkv_bias = t.qkv_bias ? (t.heads + 2 * t.kv_heads) * t.head_dim : 0;
  const std::uint64_t other_bias = t.linear_bias ? t.hidden + (t.gated_mlp ? 2 : 1) * t.ffn + t.hidden : 0;
  const std::uint64_t norms = 2 * t.hidden * (t.linear_bias ? 2 : 1);
  return layer_matrix_parameters(t) + qkv_bias + other_bias + norms;
}

/// Token embedding and output head.
[[nodiscard]] inline std::uint64_t embedding_parameters(const Transformer& t) {
  return t.vocab * t.hidden * (t.tied_embeddings ? 1 : 2);
}

[[nodiscard]] inline std::uint64_t parameters(const Transformer& t) {
  const std::uint64_t final_norm = t.hidden * (t.linear_bias ? 2 : 1);
  return t.layers * layer_parameters(t) + embedding_parameters(t) + final_norm;
}

[[nodiscard]] inline std::uint64_t parameters(const Connector& c) {
  return c.input * c.hidden + c.hidden + c.hidden * c.output + c.output;
}

/// Patch embedding of an image encoder; both convolutions of an audio encoder (kernel 3, the second one strided); none
/// without a raw input.
[[nodiscard]] inline std::uint64_t front_end_parameters(const Encoder& e) {
  if (!has_raw_input(e)) return 0;
  const std::uint64_t width = e.transformer.hidden;
  if (std::holds_alternative<AudioFrames>(e.rule)) return 3 * e.input_channels * width + 3 * width * width + 2 * width;
  const std::uint64_t patch = std::visit(
      [](const auto& rule) -> std::uint64_t {
        if constexpr (requires { rule.patch_px; }) return rule.patch_px;
        return 0;
      },
      e.rule);
  return patch * patch * e.input_channels * width + width;
}

[[nodiscard]] inline std::uint64_t parameters(const Encoder& e) {
  return parameters(e.transformer) + front_end_parameters(e) + parameters(e.connector);
}

[[nodiscard]] inline std::uint64_t parameters(const Mllm& m) {
  std::uint64_t sum = parameters(m.llm);
  for (const Encoder& encoder : m.encoders) sum += parameters(encoder);
  return sum;
}

/// Linear operations of all layers for one token, output head included.
[[nodiscard]] inline std::uint64_t linear_flops_per_token(const Transformer& t) {
  return 2 * (t.layers * layer_matrix_parameters(t) + t.vocab * t.hidden);
}

/// Attention operations of all layers per pair of tokens: scores and weighted sum; half of them if causal.
[[nodiscard]] inline std::uint64_t attention_flops_per_pair(const Transformer& t) {
  return (t.causal ? 2 : 4) * t.layers * t.heads * t.head_dim;
}

/// Σ over attention blocks of block², for a unit of `length` tokens that attend inside blocks of `span` (0 = all).
[[nodiscard]] inline double attention_pairs(std::uint64_t length, std::uint64_t span) {
  const auto l = static_cast<double>(length);
  if (span == 0 || length <= span) return l * l;
  const auto rest = static_cast<double>(length % span);
  return (l - rest) * static_cast<double>(span) + rest * rest;
}

/// Front-end operations per encoder token: patch embedding, or the convolutions over `conv_stride` mel frames.
[[nodiscard]] inline std::uint64_t front_end_flops_per_token(const Encoder& e) {
  if (const auto* audio = std::get_if<AudioFrames>(&e.rule)) {
    const std::uint64_t width = e.transformer.hidden;
    return 2 * (audio->conv_stride * 3 * e.input_channels * width + 3 * width * width);
  }
  return 2 * front_end_parameters(e);
}

/// Encoder tokens that become one output token.
[[nodiscard]] inline std::uint64_t tokens_per_output(const TokenRule& rule) {
  return std::visit(
      [](const auto& r) -> std::uint64_t {
        if constexpr (requires { r.merge; }) {
          return std::uint64_t{r.merge} * r.merge;
        } else {
          return r.pool;
        }
      },
      rule);
}

/// Connector operations per output token.
[[nodiscard]] inline std::uint64_t connector_flops_per_token(const Connector& c) {
  return 2 * (c.input * c.hidden + c.hidden * c.output);
}

/// Bytes of raw input per encoder token: pixels in 16 bits, or mel frames in 16 bits; 0 without a raw input.
[[nodiscard]] inline std::uint64_t input_bytes_per_token(const Encoder& e) {
  return std::visit(
      [&](const auto& rule) -> std::uint64_t {
        if constexpr (requires { rule.patch_px; }) {
          return std::uint64_t{rule.patch_px} * rule.patch_px * e.input_channels * 2;
        } else if constexpr (requires { rule.conv_stride; }) {
          return std::uint64_t{rule.conv_stride} * e.input_channels * 2;
        } else {
          return 0;
        }
      },
      e.rule);
}

/// Bytes of one token that leaves an encoder's connector, in 16 bits.
[[nodiscard]] inline std::uint64_t output_bytes_per_token(const Mllm& m, const Encoder& e) {
  return 2 * output_width(m, e);
}

/// Bytes of one token id.
inline constexpr std::uint64_t token_id_bytes = 8;

}  // namespace orch
