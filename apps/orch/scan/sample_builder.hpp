// Pairs members of one key into a sample and writes it as a line of a trace.
//
// Consecutive members with the same key are one sample, with all their images, clips and text in their order. A .txt
// goes before a .json (data sets keep the same caption in both). A sample with a corrupt member is left out whole, as
// training loaders do: with a unit missing it would state a length that no training step sees.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "bytes.hpp"
#include "chunk.hpp"
#include "orchmllm/model/sample.hpp"

namespace orch::scan {

/// Longest text member; longer ones are corrupt.
inline constexpr std::size_t most_text_bytes = std::size_t{1} << 20U;

class SampleBuilder {
 public:
  using WriteLine = std::function<void(const Sample&)>;
  SampleBuilder(const Settings& settings, std::string input, ChunkResult& result, WriteLine write)
      : settings_(settings), input_(std::move(input)), result_(result), write_(std::move(write)) {}

  /// Throws InvalidInput for text without --tokens-per-word, and under --strict for a corrupt member.
  void add(std::string_view key, const std::string& name, Bytes& bytes);
  /// A member that cannot be read at all.
  void add_corrupt(std::string_view key, const std::string& name, const std::string& error);
  /// Corruption of the input itself: the sample at hand is incomplete.
  void break_off(const std::string& error);
  /// Writes the last sample.
  void finish();

 private:
  void start(std::string_view key);
  void add_unit(const std::string& name, Bytes& bytes);
  void add_text(const std::string& name, Bytes& bytes);
  void corrupt(const std::string& name, const std::string& error);

  const Settings& settings_;
  std::string input_;
  ChunkResult& result_;
  WriteLine write_;
  std::optional<std::string> key_;
  Sample sample_;
  std::optional<std::uint64_t> text_words_;  ///< of .txt members
  std::optional<std::uint64_t> json_words_;  ///< of .json members
  bool bad_ = false;
  std::unordered_set<std::uint64_t> keys_;  ///< hashes of the first 2^20 keys, to notice one that comes back
};

}  // namespace orch::scan
