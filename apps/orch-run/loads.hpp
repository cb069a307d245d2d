// What calibrate runs on a rank's device: the load of phases, and copies of ragged rows as packing makes them.
//
// A rank's own backend gives them, so that what is measured is what its runs execute. Units: floating-point operations,
// a multiply-add is two; bytes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "orchmllm/base/random.hpp"
#include "statistics.hpp"

namespace orch::apps {

/// Products and attention of the load between exchanges, for its prediction.
struct LoadShape {
  double rows = 0;           ///< of a product
  double width = 0;          ///< of its square matrix
  std::size_t head_dim = 0;  ///< of attention
  double length = 0;         ///< of its sequence
};

/// Products of rows by a square matrix.
struct ProductLoad {
  std::size_t depth = 0;  ///< of the matrix
  std::function<void(double flops)> run;
};

/// Attention of heads over sequences of one length.
struct SequenceLoad {
  std::size_t length = 0;
  bool causal = false;
  double forward_flops = 0;  ///< of one head
  std::function<void(double flops, bool backward)> run;
};

struct DeviceLoads {
  Timing timing = Timing::apart;
  std::string arithmetic;    ///< "single precision"
  double memory_bytes = 0;   ///< of the device, or the host's for all its ranks
  double least_flops = 0;    ///< of a repetition: long beside its barrier
  std::size_t rows = 0;      ///< of a product, at most
  std::size_t head_dim = 0;  ///< of attention
  std::vector<ProductLoad> products;
  std::vector<SequenceLoad> attention;  ///< mask by mask, by length
  double copied_bytes = 0;
  std::function<void()> copy;  ///< from all over one buffer to the next place of another
};

/// A row of ragged_rows(): where it lies, and where it goes.
struct RaggedRow {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t bytes = 0;
};

/// Rows of 4 to 256 KiB that fill so many bytes, in any order.
[[nodiscard]] inline std::vector<RaggedRow> ragged_rows(std::size_t bytes) {
  std::vector<RaggedRow> in_place;
  Random random(1);
  for (std::size_t at = 0; at < bytes; at += in_place.back().bytes) {
    in_place.push_back({at, 0, std::min<std::size_t>(bytes - at, 4096 * (1 + random.next() % 64))});
  }
  std::vector<RaggedRow> rows;
  std::size_t to = 0;
  for (const std::uint32_t i : permutation(static_cast<std::uint32_t>(in_place.size()), random)) {
    rows.push_back({in_place[i].from, to, in_place[i].bytes});
    to += in_place[i].bytes;
  }
  return rows;
}

}  // namespace orch::apps
