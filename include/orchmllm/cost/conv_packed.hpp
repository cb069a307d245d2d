// Cost of a batch whose padded convolution front end feeds a packed transformer (audio encoders):
// α_c · b · m + Σ over units of γ + α·l + β·l², with b the batch's number of units and m its longest unit.
//
// Units: as in packed.hpp. Complexity: O(1) per unit. Throws Overflow.
// Source: OrchMLLM (arXiv 2503.23830), batch post-balancing, convolution case.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "orchmllm/base/cost.hpp"
#include "orchmllm/cost/packed.hpp"

namespace orch {

struct ConvPackedCost {
  Cost conv_alpha = 0;
  PackedCost packed;

  /// What a rank's batch cost depends on; sums of samples are batches.
  struct Batch {
    std::uint64_t units = 0;
    std::uint64_t longest = 0;
    Cost packed = 0;
  };

  [[nodiscard]] Batch batch(std::span<const std::uint32_t> unit_lengths) const {
    const auto longest = std::max_element(unit_lengths.begin(), unit_lengths.end());
    return {unit_lengths.size(), longest == unit_lengths.end() ? 0 : *longest, packed(unit_lengths)};
  }

  [[nodiscard]] static Batch merge(const Batch& a, const Batch& b) {
    return {checked_add(a.units, b.units), std::max(a.longest, b.longest), checked_add(a.packed, b.packed)};
  }

  [[nodiscard]] Cost operator()(const Batch& batch) const {
    return checked_add(checked_mul(conv_alpha, checked_mul(batch.units, batch.longest)), batch.packed);
  }
};

}  // namespace orch
