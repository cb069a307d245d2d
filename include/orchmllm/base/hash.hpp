// Fingerprints of plans and traces: a 64-bit hash of a sequence of 64-bit words, the same on every machine.
//
// Ranks compare fingerprints before they move a byte; a fingerprint detects accidents, it is no defence against an
// adversary. Each word passes the SplitMix64 finaliser (Steele, Lea, Flood 2014), so neighbouring inputs differ in
// about half of the bits. Complexity: O(1) per word.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace orch {

/// SplitMix64's finaliser: a bijection of 64-bit words.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x ^= x >> 30U;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27U;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31U;
  return x;
}

class Fingerprint {
 public:
  constexpr Fingerprint& add(std::uint64_t word) noexcept {
    state_ = mix64(state_ + word + 0x9e3779b97f4a7c15ULL);
    ++words_;
    return *this;
  }

  constexpr Fingerprint& add_all(std::span<const std::uint64_t> words) noexcept {
    add(words.size());
    for (const std::uint64_t word : words) add(word);
    return *this;
  }

  /// Two to a word.
  constexpr Fingerprint& add_all(std::span<const std::uint32_t> halves) noexcept {
    add(halves.size());
    for (std::size_t i = 0; i + 1 < halves.size(); i += 2) add(std::uint64_t{halves[i + 1]} << 32U | halves[i]);
    if (halves.size() % 2 != 0) add(halves.back());
    return *this;
  }

  /// Bytes as little-endian words, the last one zero-padded, followed by their count.
  constexpr Fingerprint& add_bytes(std::string_view bytes) noexcept {
    Fingerprint local = *this;  // stays in registers; a trace's speed depends on it
    const std::size_t rest = bytes.size() % 8;
    for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) local.add(word_at(bytes, at));
    if (rest > 0) {
      local.add(bytes.size() < 8 ? word_of(bytes) : word_at(bytes, bytes.size() - 8) >> (8 * (8 - rest)));
    }
    return *this = local.add(bytes.size());
  }

  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return mix64(state_ ^ words_); }

 private:
  static constexpr std::uint64_t word_of(std::string_view bytes) noexcept {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      word |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8U * i);
    }
    return word;
  }

  static constexpr std::uint64_t word_at(std::string_view bytes, std::size_t at) noexcept {
    if (std::is_constant_evaluated() || std::endian::native != std::endian::little) return word_of(bytes.substr(at, 8));
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    return word;
  }

  std::uint64_t state_ = 0;
  std::uint64_t words_ = 0;
};

/// Sixteen lower-case hexadecimal digits.
[[nodiscard]] inline std::string hex(std::uint64_t value) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4U) text[i] = digits[value & 15U];
  return text;
}

}  // namespace orch
