// Cost of a batch without padding: Σ over its units of γ + α·l + β·l², with l the unit's length.
//
// α is the linear part of a transformer (projections, MLP), β the attention part, γ a fixed cost per unit. With a
// finite `attention_span`, attention stays inside consecutive blocks of that many tokens (image tiles, 30-second audio
// windows), and β applies to the square of every block instead of the square of the whole unit.
// Units: α, β, γ are integers in one common unit of the caller's choice; only their ratios matter.
// Complexity: O(1) per unit. Throws Overflow.
// Source: OrchMLLM (arXiv 2503.23830), batch post-balancing, packed case.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "orchmllm/base/cost.hpp"

namespace orch {

struct PackedCost {
  Cost gamma = 0;
  Cost alpha = 1;
  Cost beta = 0;
  std::uint64_t attention_span = 0;  ///< tokens; 0 = the whole unit attends to itself

  [[nodiscard]] Cost operator()(std::uint64_t length) const {
    return checked_add(checked_add(gamma, checked_mul(alpha, length)), attention(length));
  }

  /// Cost of one sample's units together.
  [[nodiscard]] Cost operator()(std::span<const std::uint32_t> unit_lengths) const {
    Cost sum = 0;
    for (const std::uint32_t length : unit_lengths) sum = checked_add(sum, (*this)(length));
    return sum;
  }

 private:
  [[nodiscard]] Cost attention(std::uint64_t length) const {
    if (beta == 0) return 0;
    if (attention_span == 0 || length <= attention_span) return checked_mul(beta, checked_mul(length, length));
    const std::uint64_t rest = length % attention_span;
    const Cost blocks = checked_mul(length - rest, attention_span);
    return checked_mul(beta, checked_add(blocks, rest * rest));
  }
};

}  // namespace orch
