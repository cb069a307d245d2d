// Lists of work for GPU kernels, cut into equal blocks, and what one thread of a block does.
//
// A list has entries of any size: rows of bytes to copy, or extents of payload to write or check. An entry is a number
// of units: of a row 16 aligned bytes of its target, or what is left at its two ends; of an extent one word. A block of
// threads takes `block_units` units in a row, whichever entries they are of, so long and short entries load the GPU
// alike. The host counts units and finds the first entry of every block, O(entries + blocks); a thread finds the entry
// of a unit by binary search among those of its block, unless all of the block is of one row. Sources and targets of a
// list do not overlap.
// What a thread does compiles for the host as well: tests run every block and thread there, and look at the bytes.
// Units of offsets: bytes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "orchmllm/runtime/payload.hpp"

#ifdef __CUDACC__
#define ORCHMLLM_DEVICE __host__ __device__
#else
#define ORCHMLLM_DEVICE
#endif

namespace orch::runtime {

inline constexpr std::uint32_t block_threads = 256;
inline constexpr std::uint32_t block_units = 8 * block_threads;

/// One run of bytes from place to place.
struct alignas(16) Row {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t first_unit = 0;
};

/// Payload of one extent: word w is payload_word(key, w).
struct PayloadRow {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t key = 0;
  std::uint64_t first_unit = 0;
};

/// Payload's words, or those that a sampled check takes.
enum class Words : std::uint8_t { all, sampled };

/// A list where a kernel reads it. `first_entry[b]` is the entry of the first unit of block b; one more than blocks,
/// the last one is the last entry.
template <class Entry>
struct WorkView {
  const Entry* entries = nullptr;
  const std::uint32_t* first_entry = nullptr;
  std::uint64_t units = 0;
  std::uint32_t blocks = 0;
};

namespace detail {

/// Bytes before the first aligned one of the target.
[[nodiscard]] ORCHMLLM_DEVICE inline std::uint64_t head_bytes(const std::byte* target, std::uint64_t bytes) {
  const std::uint64_t head = (16 - (reinterpret_cast<std::uintptr_t>(target) & 15U)) & 15U;
  return head < bytes ? head : bytes;
}

[[nodiscard]] inline std::uint64_t units_of(const Row& row, Words) {
  const std::uint64_t head = head_bytes(row.target, row.bytes);
  return (head > 0 ? 1 : 0) + (row.bytes - head + 15) / 16;
}

[[nodiscard]] inline std::uint64_t units_of(const PayloadRow& row, Words words) {
  const std::uint64_t all = (row.bytes + 7) / 8;
  return words == Words::sampled ? std::min<std::uint64_t>(all, 3) : all;
}

}  // namespace detail

/// A list as the host makes it. Entries without units must not be added.
template <class Entry>
struct Work {
  std::vector<Entry> entries;
  std::vector<std::uint32_t> first_entry;
  std::uint64_t units = 0;

  void clear() {
    entries.clear();
    first_entry.clear();
    units = 0;
  }

  void add(Entry entry, Words words = Words::all) {
    entry.first_unit = units;
    units += detail::units_of(entry, words);
    const auto index = static_cast<std::uint32_t>(entries.size());
    while (first_entry.size() * block_units < units) first_entry.push_back(index);
    entries.push_back(entry);
  }

  [[nodiscard]] std::uint32_t blocks() const { return static_cast<std::uint32_t>(first_entry.size()); }

  /// To be called once, when all is added.
  void close() { first_entry.push_back(static_cast<std::uint32_t>(entries.size()) - 1); }
};

/// The entry that a unit of a block belongs to. `starts` are the first units of the block's entries, from the block's
/// first unit on; that of the first one, which may begin earlier, is 0.
[[nodiscard]] ORCHMLLM_DEVICE inline std::uint32_t find_entry(const std::uint32_t* starts, std::uint32_t count,
                                                              std::uint32_t unit) {
  std::uint32_t low = 0;
  while (count > 1) {
    const std::uint32_t half = count / 2;
    if (starts[low + half] <= unit) {
      low += half;
      count -= half;
    } else {
      count = half;
    }
  }
  return low;
}

/// 16 bytes, or the 1 to 15 at an end of a row.
struct Piece {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::uint32_t bytes = 0;
};

[[nodiscard]] ORCHMLLM_DEVICE inline Piece piece_of(const Row& row, std::uint64_t unit) {
  const std::uint64_t head = detail::head_bytes(row.target, row.bytes);
  std::uint64_t at = 0;
  std::uint64_t bytes = head;
  if (head == 0 || unit > 0) {
    at = head + 16 * (unit - (head > 0 ? 1 : 0));
    bytes = row.bytes - at < 16 ? row.bytes - at : 16;
  }
  return {row.source + at, row.target + at, static_cast<std::uint32_t>(bytes)};
}

struct alignas(16) Vector {
  std::uint32_t words[4];
};

/// 16 bytes at a multiple of 16.
[[nodiscard]] ORCHMLLM_DEVICE inline Vector load_aligned(const std::byte* source) {
#ifdef __CUDA_ARCH__
  const uint4 all = __ldg(reinterpret_cast<const uint4*>(source));
  return {{all.x, all.y, all.z, all.w}};
#else
  assert(reinterpret_cast<std::uintptr_t>(source) % 16 == 0);
  Vector vector;
  std::memcpy(&vector, source, 16);
  return vector;
#endif
}

/// 16 bytes that begin anywhere, read in parts as wide as their alignment allows.
[[nodiscard]] ORCHMLLM_DEVICE inline Vector load_vector(const std::byte* source) {
#ifdef __CUDA_ARCH__
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(source);
  Vector vector;
  if ((address & 15U) == 0) return load_aligned(source);
  if ((address & 7U) == 0) {
    const uint2 low = reinterpret_cast<const uint2*>(source)[0];
    const uint2 high = reinterpret_cast<const uint2*>(source)[1];
    return {{low.x, low.y, high.x, high.y}};
  }
  if ((address & 3U) == 0) {
    for (int i = 0; i < 4; ++i) vector.words[i] = reinterpret_cast<const std::uint32_t*>(source)[i];
  } else if ((address & 1U) == 0) {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(source);
    for (int i = 0; i < 4; ++i) vector.words[i] = halves[2 * i] | std::uint32_t{halves[2 * i + 1]} << 16U;
  } else {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(source);
    for (int i = 0; i < 4; ++i) {
      vector.words[i] = bytes[4 * i] | std::uint32_t{bytes[4 * i + 1]} << 8U | std::uint32_t{bytes[4 * i + 2]} << 16U |
                        std::uint32_t{bytes[4 * i + 3]} << 24U;
    }
  }
  return vector;
#else
  Vector vector;
  std::memcpy(&vector, source, 16);
  return vector;
#endif
}

ORCHMLLM_DEVICE inline void store_vector(const Vector& vector, std::byte* target) {
#ifdef __CUDA_ARCH__
  __stcs(reinterpret_cast<uint4*>(target),
         make_uint4(vector.words[0], vector.words[1], vector.words[2], vector.words[3]));
#else
  assert(reinterpret_cast<std::uintptr_t>(target) % 16 == 0);
  std::memcpy(target, &vector, 16);
#endif
}

/// The 16 bytes from `shift` (1 to 15) on of two aligned vectors that follow each other.
[[nodiscard]] ORCHMLLM_DEVICE inline Vector load_shifted(const std::byte* aligned, std::uint32_t shift) {
#ifdef __CUDA_ARCH__
  const Vector low = load_aligned(aligned);
  const Vector high = load_aligned(aligned + 16);
  std::uint32_t words[8] = {low.words[0],  low.words[1],  low.words[2],  low.words[3],
                            high.words[0], high.words[1], high.words[2], high.words[3]};
  // By selects, not by index: an indexed array would not stay in registers.
#pragma unroll
  for (int i = 0; i < 6; ++i) words[i] = (shift & 8U) != 0 ? words[i + 2] : words[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) words[i] = (shift & 4U) != 0 ? words[i + 1] : words[i];
  Vector vector;
#pragma unroll
  for (int i = 0; i < 4; ++i) vector.words[i] = __funnelshift_r(words[i], words[i + 1], 8 * (shift & 3U));
  return vector;
#else
  const Vector both[2] = {load_aligned(aligned), load_aligned(aligned + 16)};
  Vector vector;
  std::memcpy(&vector, reinterpret_cast<const std::byte*>(both) + shift, 16);
  return vector;
#endif
}

/// The first unit of a block, and the one after its last.
struct Units {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
template <class Entry>
[[nodiscard]] ORCHMLLM_DEVICE Units units_of_block(const WorkView<Entry>& work, std::uint32_t block) {
  const std::uint64_t begin = std::uint64_t{block} * block_units;
  return {begin, work.units - begin < block_units ? work.units : begin + block_units};
}

namespace detail {

/// Vectors first, first + block_threads, … before `end`; of so many together all reads come before the first write.
template <std::uint32_t together, class Load>
ORCHMLLM_DEVICE void copy_vectors(std::byte* target, std::uint64_t first, std::uint64_t end, Load&& load) {
  for (; first + (together - 1) * block_threads < end; first += together * block_threads) {
    Vector vectors[together];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (std::uint32_t i = 0; i < together; ++i) vectors[i] = load(first + i * block_threads);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (std::uint32_t i = 0; i < together; ++i) store_vector(vectors[i], target + 16 * (first + i * block_threads));
  }
  for (; first < end; first += block_threads) store_vector(load(first), target + 16 * first);
}

ORCHMLLM_DEVICE inline void copy_bytes(const std::byte* from, std::byte* to, std::uint64_t bytes) {
  for (std::uint64_t i = 0; i < bytes; ++i) to[i] = from[i];
}

}  // namespace detail

/// The row that all units of a block are of; null if they are of several.
[[nodiscard]] ORCHMLLM_DEVICE inline const Row* only_row(const WorkView<Row>& work, std::uint32_t block) {
  const std::uint32_t first = work.first_entry[block];
  const std::uint32_t others = work.first_entry[block + 1] - first;
  const Row* row = work.entries + first;
  const bool alone = others == 0 || (others == 1 && row[1].first_unit >= units_of_block(work, block).end);
  return alone ? row : nullptr;
}

/// What a thread copies of a block whose units are all of one row: nothing is searched.
ORCHMLLM_DEVICE inline void copy_within_row(Row row, Units units, std::uint32_t thread) {
  const std::uint64_t head = detail::head_bytes(row.target, row.bytes);
  const std::uint64_t before = head > 0 ? 1 : 0;  // units before the first vector
  const std::uint64_t vectors = (row.bytes - head) / 16;
  const std::byte* source = row.source + head;
  std::byte* target = row.target + head;
  const std::uint64_t begin = units.begin - row.first_unit;
  const std::uint64_t end = units.end - row.first_unit;
  const std::uint64_t first = begin < before ? 0 : begin - before;
  const std::uint64_t last = end - before < vectors ? end - before : vectors;
  const auto shift = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(source) & 15U);
  // Vectors whose aligned reads stay within the row; of others there are at most the first and the last one.
  const std::uint64_t lower = head >= shift ? 0 : 1;
  const std::uint64_t fitting = shift == 0 ? vectors : (row.bytes - head + shift) / 16 - 1;
  const std::uint64_t upper = fitting > lower ? fitting : lower;
  const std::uint64_t from = (first > lower ? first : lower) + thread;
  const std::uint64_t to = last < upper ? last : upper;
  if (shift == 0) {
    detail::copy_vectors<8>(target, from, to, [&](std::uint64_t v) { return load_aligned(source + 16 * v); });
  } else {
    detail::copy_vectors<4>(target, from, to,
                            [&](std::uint64_t v) { return load_shifted(source + 16 * v - shift, shift); });
  }
  if (thread == 0) {
    if (begin < before) detail::copy_bytes(row.source, row.target, head);
    if (first < lower && first < last) detail::copy_bytes(source, target, 16);
  }
  if (thread == block_threads - 1) {
    if (first < last && upper < last) detail::copy_bytes(source + 16 * upper, target + 16 * upper, 16 * (last - upper));
    const std::uint64_t tail = row.bytes - head - 16 * vectors;
    if (end > vectors + before) detail::copy_bytes(source + 16 * vectors, target + 16 * vectors, tail);
  }
}

/// Units `thread`, `thread` + block_threads, … of a block. Four at a time, so that four reads are under way.
ORCHMLLM_DEVICE inline void copy_units(const WorkView<Row>& work, std::uint32_t block, const std::uint32_t* starts,
                                       std::uint32_t thread) {
  constexpr std::uint32_t together = 4;
  const Row* rows = work.entries + work.first_entry[block];
  const std::uint32_t count = work.first_entry[block + 1] - work.first_entry[block] + 1;
  const auto [begin, end] = units_of_block(work, block);
  const auto units = static_cast<std::uint32_t>(end - begin);
  for (std::uint32_t first = thread; first < units; first += together * block_threads) {
    Piece pieces[together];
    Vector vectors[together];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (std::uint32_t i = 0; i < together; ++i) {
      const std::uint32_t unit = first + i * block_threads;
      pieces[i].bytes = 0;
      if (unit >= units) continue;
      const Row& row = rows[find_entry(starts, count, unit)];
      pieces[i] = piece_of(row, begin + unit - row.first_unit);
      if (pieces[i].bytes == 16) vectors[i] = load_vector(pieces[i].source);
    }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (std::uint32_t i = 0; i < together; ++i) {
      if (pieces[i].bytes == 16) {
        store_vector(vectors[i], pieces[i].target);
      } else {
        detail::copy_bytes(pieces[i].source, pieces[i].target, pieces[i].bytes);
      }
    }
  }
}

/// The word that a unit of an extent stands for.
[[nodiscard]] ORCHMLLM_DEVICE inline std::uint64_t word_of_unit(const PayloadRow& row, std::uint64_t unit,
                                                                Words words) {
  if (words == Words::all) return unit;
  const std::uint64_t all = (row.bytes + 7) / 8;
  if (unit == 0) return 0;
  return unit == 1 && all > 2 ? all / 2 : all - 1;
}

/// Visits the words of the units that a thread has of a block: visit(entry, word's address, its bytes, what it is).
template <class Visit>
ORCHMLLM_DEVICE void each_word(const WorkView<PayloadRow>& work, Words words, std::uint32_t block,
                               const std::uint32_t* starts, std::uint32_t thread, Visit&& visit) {
  const PayloadRow* rows = work.entries + work.first_entry[block];
  const std::uint32_t count = work.first_entry[block + 1] - work.first_entry[block] + 1;
  const auto [begin, end] = units_of_block(work, block);
  const auto units = static_cast<std::uint32_t>(end - begin);
  for (std::uint32_t unit = thread; unit < units; unit += block_threads) {
    const std::uint32_t entry = find_entry(starts, count, unit);
    const PayloadRow& row = rows[entry];
    const std::uint64_t word = word_of_unit(row, begin + unit - row.first_unit, words);
    const std::uint64_t rest = row.bytes - 8 * word;
    visit(work.first_entry[block] + entry, row.data + 8 * word, static_cast<std::uint32_t>(rest < 8 ? rest : 8),
          detail::payload_word(row.key, word));
  }
}

ORCHMLLM_DEVICE inline void store_word(std::uint64_t word, std::byte* to, std::uint32_t bytes) {
#ifdef __CUDA_ARCH__
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(to);
  if (bytes == 8 && (address & 7U) == 0) {
    *reinterpret_cast<std::uint64_t*>(to) = word;
    return;
  }
  if (bytes == 8 && (address & 3U) == 0) {
    reinterpret_cast<std::uint32_t*>(to)[0] = static_cast<std::uint32_t>(word);
    reinterpret_cast<std::uint32_t*>(to)[1] = static_cast<std::uint32_t>(word >> 32U);
    return;
  }
#endif
  for (std::uint32_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(word >> (8 * i) & 0xffU);
}

[[nodiscard]] ORCHMLLM_DEVICE inline bool holds_word(std::uint64_t word, const std::byte* at, std::uint32_t bytes) {
#ifdef __CUDA_ARCH__
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(at);
  if (bytes == 8 && (address & 7U) == 0) return *reinterpret_cast<const std::uint64_t*>(at) == word;
  if (bytes == 8 && (address & 3U) == 0) {
    return reinterpret_cast<const std::uint32_t*>(at)[0] == static_cast<std::uint32_t>(word) &&
           reinterpret_cast<const std::uint32_t*>(at)[1] == static_cast<std::uint32_t>(word >> 32U);
  }
#endif
  for (std::uint32_t i = 0; i < bytes; ++i) {
    if (at[i] != static_cast<std::byte>(word >> (8 * i) & 0xffU)) return false;
  }
  return true;
}

/// First units of a block's entries, counted from its own first unit: what find_entry() searches.
template <class Entry>
[[nodiscard]] ORCHMLLM_DEVICE std::uint32_t start_in_block(const WorkView<Entry>& work, std::uint32_t block,
                                                           std::uint32_t entry) {
  const std::uint64_t begin = std::uint64_t{block} * block_units;
  const std::uint64_t first = work.entries[work.first_entry[block] + entry].first_unit;
  return first > begin ? static_cast<std::uint32_t>(first - begin) : 0;
}

}  // namespace orch::runtime
