// Cost models derived from a model's shape: α : β is the ratio of linear to attention operations.
//
// Only the ratio matters to a solver, so β is the smallest power of two for which α ≥ 4,096: α is then rounded by less
// than 1/8,192, and sums over a global batch stay far below 64 bits.
// Complexity: O(1). Throws InvalidInput for a shape without attention.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "orchmllm/cost/conv_packed.hpp"
#include "orchmllm/cost/packed.hpp"
#include "orchmllm/cost/padded.hpp"
#include "orchmllm/model/flops.hpp"

namespace orch {

namespace detail {

/// ⌊a · b / c⌉, exact to rounding; the factors here stay below 2^53.
[[nodiscard]] inline Cost scaled(std::uint64_t flops, Cost scale, std::uint64_t unit) {
  return (checked_mul(flops, scale) + unit / 2) / unit;
}

[[nodiscard]] inline PackedCost packed_cost(std::uint64_t linear_flops, const Transformer& t, std::uint64_t span) {
  const std::uint64_t pair = attention_flops_per_pair(t);
  if (pair == 0) throw InvalidInput("a transformer without layers or heads has no cost");
  Cost beta = 1;
  while (beta < 4096 && scaled(linear_flops, beta, pair) < 4096) beta *= 2;
  return {.gamma = 0, .alpha = scaled(linear_flops, beta, pair), .beta = beta, .attention_span = span};
}

}  // namespace detail

/// Cost of the LLM phase.
[[nodiscard]] inline PackedCost llm_cost(const Mllm& model) {
  return detail::packed_cost(linear_flops_per_token(model.llm), model.llm, 0);
}

/// Cost of the LLM phase where a rank pads its sequences to the longest of them.
[[nodiscard]] inline PaddedCost llm_padded_cost(const Mllm& model) {
  const PackedCost packed = llm_cost(model);
  return {.alpha = packed.alpha, .beta = packed.beta};
}

/// Cost of an encoder phase, its connector included. Audio front ends are padded: their convolutions cost b · m.
[[nodiscard]] inline ConvPackedCost encoder_cost(const Encoder& encoder) {
  const Transformer& t = encoder.transformer;
  std::uint64_t linear = linear_flops_per_token(t);
  linear += connector_flops_per_token(encoder.connector) / tokens_per_output(encoder.rule);
  const std::uint64_t front_end = front_end_flops_per_token(encoder);
  const bool padded = std::holds_alternative<AudioFrames>(encoder.rule);
  if (!padded) linear += front_end;

  const PackedCost packed = detail::packed_cost(linear, t, attention_span(encoder.rule));
  const Cost conv = padded ? detail::scaled(front_end, packed.beta, attention_flops_per_pair(t)) : 0;
  return {.conv_alpha = conv, .packed = packed};
}

}  // namespace orch
