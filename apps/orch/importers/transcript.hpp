// Collects a conversation: runs of text, units between them, which text the model learns to say. Fills text, order and
// supervised of a sample.
//
// Words become tokens by --tokens-per-word, rounded so that the runs sum to the rounded whole. `order` is written only
// where it differs from "units of one kind, then text", and `supervised` only where some text is not the assistant's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "importer.hpp"
#include "values.hpp"

namespace orch::apps {

[[nodiscard]] inline bool is_assistant(std::string_view role) {
  constexpr std::array<std::string_view, 4> names{"assistant", "gpt", "Assistant", "model"};
  return std::find(names.begin(), names.end(), role) != names.end();
}

class Transcript {
 public:
  /// Text without tags.
  void text(std::string_view words, bool supervised) { add(count_words(words), supervised); }

  /// `kind` must outlive the transcript (a literal).
  void unit(std::string_view kind) { parts_.push_back({words_, kind}); }

  /// Text in which <image>, <video> and <audio> stand for units.
  void tagged_text(std::string_view text, bool supervised) {
    constexpr std::array<std::string_view, 3> kinds{"image", "video", "audio"};
    std::size_t done = 0;
    for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
      const std::string_view rest = text.substr(at + 1);
      const auto* kind = std::find_if(kinds.begin(), kinds.end(), [&](std::string_view name) {
        return rest.starts_with(name) && rest.substr(name.size()).starts_with('>');
      });
      if (kind == kinds.end()) continue;
      add(count_words(text.substr(done, at - done)), supervised);
      unit(*kind);
      done = at + kind->size() + 2;
      at = done - 1;
    }
    add(count_words(text.substr(done)), supervised);
  }

  [[nodiscard]] std::size_t units(std::string_view kind) const {
    return static_cast<std::size_t>(
        std::count_if(parts_.begin(), parts_.end(), [&](const Part& part) { return part.kind == kind; }));
  }

  void append(const Transcript& later) {
    for (const Part& part : later.parts_) parts_.push_back({words_ + part.words_before, part.kind});
    words_ += later.words_;
    supervised_words_ += later.supervised_words_;
  }

  void finish(const Import& import, Sample& sample) const {
    if (words_ == 0) return;
    sample.text = import.tokens(words_);
    if (supervised_words_ > 0 && supervised_words_ < words_) sample.supervised = import.tokens(supervised_words_);
    if (has_implied_order()) return;
    std::uint32_t done = 0;
    for (const Part& part : parts_) {
      const std::uint32_t until = import.tokens(part.words_before);
      if (until > done) sample.order.push_back({until - done, {}});
      done = until;
      sample.order.push_back({0, std::string(part.kind)});
    }
    if (sample.text > done) sample.order.push_back({sample.text - done, {}});
  }

 private:
  struct Part {
    std::uint64_t words_before;
    std::string_view kind;
  };

  [[nodiscard]] bool has_implied_order() const {
    return std::all_of(parts_.begin(), parts_.end(),
                       [&](const Part& part) { return part.words_before == 0 && part.kind == parts_.front().kind; });
  }

  void add(std::uint64_t words, bool supervised) {
    words_ += words;
    if (supervised) supervised_words_ += words;
  }

  std::vector<Part> parts_;
  std::uint64_t words_ = 0;
  std::uint64_t supervised_words_ = 0;
};

}  // namespace orch::apps
