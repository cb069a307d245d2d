// Cost of a padded batch: b · (α·m + β·m²), with b its number of samples and m its longest length.
//
// Units: as in packed.hpp. Complexity: O(1). Throws Overflow.
// Source: OrchMLLM (arXiv 2503.23830), batch post-balancing, padded case.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "orchmllm/base/cost.hpp"

namespace orch {

struct PaddedCost {
  Cost alpha = 1;
  Cost beta = 0;

  /// Cost of one sample padded to `longest`.
  [[nodiscard]] Cost per_sample(std::uint64_t longest) const {
    return checked_add(checked_mul(alpha, longest), checked_mul(beta, checked_mul(longest, longest)));
  }

  [[nodiscard]] Cost operator()(std::uint64_t count, std::uint64_t longest) const {
    return checked_mul(count, per_sample(longest));
  }
};

}  // namespace orch
