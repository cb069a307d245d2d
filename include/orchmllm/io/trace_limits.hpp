// What a line of a trace may hold at most; far above real data.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace orch::io::detail {

inline constexpr std::uint64_t max_tokens = std::uint64_t{1} << 30U;
inline constexpr std::uint64_t max_pixels_a_side = std::uint64_t{1} << 20U;
inline constexpr std::uint64_t max_frames = std::uint64_t{1} << 24U;
inline constexpr double max_seconds = 1e7;
inline constexpr std::size_t max_units = std::size_t{1} << 20U;
inline constexpr std::size_t max_phases = 64;

}  // namespace orch::io::detail
