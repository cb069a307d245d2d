// Long samples in pieces, for strategies that spread them over context-parallel ranks.
//
// A sample whose LLM cost is more than a rank's fair share is cut into the smallest power of two of pieces, at most as
// many as a node has ranks, of equal cost (zig-zag: every piece has its share of tokens and of attention). A piece is
// planned like a sample of its own: with the length that costs as much, and the units that stand in its part of the
// sequence. Complexity: O(samples + units).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "orchmllm/model/architecture.hpp"
#include "orchmllm/model/phase_lengths.hpp"

namespace orch::sim {

/// What a piece really is.
struct SamplePiece {
  std::uint32_t length = 0;  ///< LLM tokens of the whole sample
  std::uint32_t pieces = 1;  ///< of it
};

struct SplitLengths {
  PhaseLengths lengths;              ///< of the trace, then of all pieces
  std::vector<std::uint32_t> first;  ///< sample of the trace → its first piece, or itself
  std::vector<std::uint32_t> count;  ///< sample of the trace → pieces, 1 if it is whole
  std::vector<SamplePiece> pieces;   ///< by index − samples of the trace
  std::uint32_t whole = 0;           ///< samples of the trace

  [[nodiscard]] bool is_piece(std::uint32_t index) const { return index >= whole; }
};

/// `batch` = samples that a rank draws a step. Throws InvalidInput for a model with encoders that feed encoders.
[[nodiscard]] SplitLengths split_samples(const Mllm& model, const PhaseLengths& lengths, std::uint32_t batch,
                                         std::uint32_t ranks_per_node);

/// A global batch with pieces in the places of samples.
struct SplitBatch {
  std::vector<std::uint32_t> samples;
  std::vector<std::uint32_t> home;
};
[[nodiscard]] SplitBatch in_pieces(const SplitLengths& split, const std::vector<std::uint32_t>& samples,
                                   const std::vector<std::uint32_t>& home);

}  // namespace orch::sim
