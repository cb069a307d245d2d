// Payload that proves where it came from: every eight bytes are a hash of what they belong to and their position.
//
// An extent is the elements that one item brings of one field. Its key is a hash of (seed, step, direction, route,
// field, sample, unit); word w of the extent is a hash of (key, w). So an element of another sample, unit, field,
// position, step or direction differs, by chance equal in 1 of 2^(8 · element bytes) cases. Complexity: O(bytes).
// Units: bytes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/base/hash.hpp"

namespace orch::runtime {

/// What one item brings of one field, and where that lies in a buffer.
struct Extent {
  std::uint32_t sample = 0;  ///< of the global batch
  std::uint32_t unit = 0;    ///< number of the unit in its sample
  std::uint32_t field = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

enum class Direction : std::uint8_t { forward, backward };

/// What all extents of one exchange have in common.
struct Origin {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  Direction direction = Direction::forward;
  std::uint64_t route = 0;

  [[nodiscard]] std::uint64_t key(const Extent& extent) const {
    Fingerprint print;
    print.add(seed).add(step).add(static_cast<std::uint64_t>(direction)).add(route);
    return print.add(extent.field).add(extent.sample).add(extent.unit).value();
  }
};

enum class Verify : std::uint8_t {
  off,
  sample,  ///< the first, the middle and the last eight bytes of every extent
  full,
};

/// An element that is not what it should be.
struct Mismatch {
  Extent extent;
  std::uint64_t element = 0;
  std::string expected, found;  ///< hexadecimal
};

namespace detail {

[[nodiscard]] constexpr std::uint64_t payload_word(std::uint64_t key, std::uint64_t word) noexcept {
  return mix64(key + (word + 1) * 0x9e3779b97f4a7c15ULL);
}

/// Words as they lie in memory, the same on every machine.
[[nodiscard]] inline std::array<std::byte, 8> bytes_of(std::uint64_t word) {
  std::array<std::byte, 8> bytes{};
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(word >> (8 * i) & 0xffU);
  return bytes;
}

inline void store(std::uint64_t word, std::byte* to, std::size_t bytes) {
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(to, &word, bytes);
  } else {
    std::memcpy(to, bytes_of(word).data(), bytes);
  }
}

[[nodiscard]] inline bool holds(std::uint64_t word, const std::byte* at, std::size_t bytes) {
  std::array<std::byte, 8> expected{};
  store(word, expected.data(), 8);
  return std::memcmp(expected.data(), at, bytes) == 0;
}

[[nodiscard]] inline std::string hex_bytes(std::span<const std::byte> bytes) {
  std::string text = "0x";
  for (std::size_t i = bytes.size(); i-- > 0;) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[std::to_integer<unsigned>(bytes[i]) >> 4U];
    text += digits[std::to_integer<unsigned>(bytes[i]) & 15U];
  }
  return text;
}

/// The bytes that an extent should hold from `first` on.
[[nodiscard]] inline std::vector<std::byte> expected_bytes(std::uint64_t key, std::uint64_t first, std::size_t count) {
  std::vector<std::byte> bytes;
  for (std::uint64_t at = first; at < first + count; ++at) {
    bytes.push_back(bytes_of(payload_word(key, at / 8))[at % 8]);
  }
  return bytes;
}

}  // namespace detail

inline void fill(const Origin& origin, const Extent& extent, std::span<std::byte> buffer) {
  const std::uint64_t key = origin.key(extent);
  std::byte* to = buffer.data() + extent.offset;
  const std::uint64_t words = extent.bytes / 8;
  for (std::uint64_t w = 0; w < words; ++w) detail::store(detail::payload_word(key, w), to + 8 * w, 8);
  if (extent.bytes % 8 != 0) detail::store(detail::payload_word(key, words), to + 8 * words, extent.bytes % 8);
}

/// Compares an extent with what it should hold; every element that differs is handed to `found`. Returns the bytes that
/// were compared. Elements divide the extent.
template <class Found>
std::uint64_t check(const Origin& origin, const Extent& extent, std::span<const std::byte> buffer,
                    std::uint64_t element_bytes, Verify verify, Found&& found) {
  if (verify == Verify::off || extent.bytes == 0) return 0;
  const std::uint64_t key = origin.key(extent);
  const std::span<const std::byte> held = buffer.subspan(extent.offset, extent.bytes);
  std::uint64_t compared = 0;
  std::uint64_t reported = 0;  // elements before this one are
  const auto check_word = [&](std::uint64_t w) {
    const std::size_t bytes = std::min<std::uint64_t>(8, extent.bytes - 8 * w);
    compared += bytes;
    if (detail::holds(detail::payload_word(key, w), held.data() + 8 * w, bytes)) return;
    const std::uint64_t first = std::max(reported, 8 * w / element_bytes);
    const std::uint64_t last = (8 * w + bytes - 1) / element_bytes;
    for (std::uint64_t element = first; element <= last; ++element) {
      const auto is = held.subspan(element * element_bytes, element_bytes);
      const std::vector<std::byte> wanted = detail::expected_bytes(key, element * element_bytes, element_bytes);
      if (std::equal(is.begin(), is.end(), wanted.begin())) continue;
      found(Mismatch{extent, element, detail::hex_bytes(wanted), detail::hex_bytes(is)});
    }
    reported = last + 1;
  };
  const std::uint64_t words = (extent.bytes + 7) / 8;
  if (verify == Verify::full) {
    for (std::uint64_t w = 0; w < words; ++w) check_word(w);
    return compared;
  }
  check_word(0);
  if (words > 2) check_word(words / 2);
  if (words > 1) check_word(words - 1);
  return compared;
}

}  // namespace orch::runtime
