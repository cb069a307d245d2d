// What an importer is: a function that reads a foreign file and hands over samples one by one.
//
// Data flows one way: file → importer → Import (checks, counts, skips) → sink. An importer adds a sample through
// Import::record(), which puts file and line in front of every fault. Two kinds of fault: InvalidInput (the file is
// wrong) and Incomplete (the file does not say a length; names the option that would; skipped under
// --skip-incomplete).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orchmllm/base/error.hpp"
#include "orchmllm/model/sample.hpp"

namespace orch::apps {

/// The file is well-formed, but does not know a length.
class Incomplete : public InvalidInput {
 public:
  using InvalidInput::InvalidInput;
};

struct ImportOptions {
  std::vector<std::string> only;     ///< entries of a list file; empty = all
  std::vector<std::string> columns;  ///< FIELD=COLUMN (csv)
  std::optional<double> tokens_per_word;
  std::optional<Image> image_size;                ///< of images whose size the source does not say
  std::optional<std::uint32_t> tokens_per_image;  ///< LLM tokens, where the source only counts images
  std::optional<std::uint32_t> encoder_ratio;     ///< encoder tokens an LLM token, where the source has only the latter
  std::optional<double> audio_seconds;            ///< of clips whose duration the source does not say
  std::optional<double> video_seconds;
  std::optional<double> frame_shift;  ///< seconds a feature frame
  std::uint64_t seed = 1;             ///< of sources that hold distributions
  bool skip_incomplete = false;
};

/// Names for a message, the first of them: "a, b, c, … (7 more)".
[[nodiscard]] std::string listing(const std::vector<std::string>& names);

using SampleSink = std::function<void(const Sample&)>;

/// Where a record stands, for messages.
struct Place {
  const std::string& path;
  std::uint64_t line;  ///< from 1; 0 = the file has no lines
  std::string record;  ///< "record 7: " in an array, where lines tell little; else empty
};

/// One run of an importer: what it may use, and the way out for samples.
class Import {
 public:
  Import(const ImportOptions& given, SampleSink to) : options(given), sink_(std::move(to)) {}

  const ImportOptions& options;

  /// `build(sample)` fills a sample, which is checked and handed over. Its task is set; it gets an id of task and
  /// number unless `build` gives one.
  void record(const Place& place, std::string_view task, const std::function<void(Sample&)>& build);

  /// `resolve()` finds what an entry of a list refers to. True unless it is skipped.
  [[nodiscard]] bool entry(const Place& place, const std::function<void()>& resolve);

  /// Tokens of a text of which only the words are known.
  [[nodiscard]] std::uint32_t tokens(std::uint64_t words) const;

  /// What else a user must know of the result: once each, shown after the conversion.
  void note(const std::string& text);

  [[nodiscard]] bool wanted(std::string_view entry) const;
  /// Throws if --only names an entry that was never asked for by wanted().
  void check_only(const std::string& path, const std::vector<std::string>& entries) const;

  [[nodiscard]] std::uint64_t samples() const { return samples_; }
  [[nodiscard]] std::uint64_t skipped() const { return skipped_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  /// Calls with faults placed; false if what is missing may be skipped.
  [[nodiscard]] bool guarded(const Place& place, const std::function<void()>& call);

  SampleSink sink_;
  Sample sample_;
  std::uint64_t samples_ = 0;
  std::uint64_t skipped_ = 0;
  std::vector<std::string> notes_;
};

/// The beginning of a file, for recognition.
struct Probe {
  std::string path;
  std::string name;  ///< without folders and without .gz, .zst
  bool is_folder = false;
  std::string first_line;         ///< without its end; at most 64 KiB; empty where it is longer than a line may be
  std::string second_line;        ///< the next that is not blank
  bool is_list = false;           ///< a JSON object whose members are objects
  bool is_packed = false;         ///< the first row is an array of rows
  std::vector<std::string> keys;  ///< of the first row or member, with those one level deeper as "outer.inner"

  [[nodiscard]] bool has(std::initializer_list<std::string_view> all) const;
};

[[nodiscard]] Probe probe(const std::string& path);

struct Importer {
  const char* name;
  const char* description;
  const char* kind;  ///< of the trace: "training" or "inference"
  /// How it knew; empty if the file is not of this format.
  std::string (*recognise)(const Probe&);
  void (*read)(const std::string& path, Import&);
};

/// All importers, by name.
[[nodiscard]] std::span<const Importer* const> importers();

/// Finds by name. Throws InvalidInput with the list of formats.
[[nodiscard]] const Importer& importer(std::string_view name);

struct Recognition {
  const Importer* importer;
  std::string reason;
};

/// The one importer that recognises the file. Throws InvalidInput if none or several do.
[[nodiscard]] Recognition recognise(const std::string& path);

}  // namespace orch::apps
