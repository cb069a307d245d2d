// OmniBal length files of InternVL data: an array of {"vit_num", "token_num", "image_flags"} a sample, or a list file
// {"name": {"token_lengths": path}}.
//
// vit_num counts 448-pixel tiles; each is 1024 patches for the encoder (14-pixel patches) and 256 tokens for the LLM
// (pixel shuffle by 2 × 2); token_num counts all LLM tokens. image_flags counts the tiles that are not blank
// placeholders of a sample without images; only these reach the LLM.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "formats.hpp"
#include "json_rows.hpp"

namespace orch::apps {

namespace {

constexpr std::uint32_t encoder_tokens = 1024;
constexpr std::uint32_t llm_tokens = 256;
constexpr std::uint64_t most_tiles = 1U << 16U;

std::string recognise(const Probe& probe) {
  if (probe.has({"vit_num", "token_num"})) return "records have vit_num and token_num";
  return probe.is_list && probe.has({"token_lengths"}) ? "entries have token_lengths" : "";
}

void read_lengths(const std::string& path, const std::string& task, Import& import) {
  each_row(path, task, import, [](Object row, Sample& sample) {
    const std::uint32_t tiles = read_integer(need(row, "vit_num"), "vit_num", 0, most_tiles);
    const std::uint32_t tokens = read_integer(need(row, "token_num"), "token_num", 0, max_tokens);
    // The files say image_flags, the project's description image_flag.
    const char* flags = find(row, "image_flag") ? "image_flag" : "image_flags";
    const std::uint32_t images = read_integer(need(row, flags), flags, 0, tiles);
    if (tokens < images * llm_tokens) {
      throw InvalidInput(fmt::format("token_num is {}, expected at least {}, {} for each of {} tiles", tokens,
                                     images * llm_tokens, llm_tokens, images));
    }
    sample.text = tokens - images * llm_tokens;
    if (images == 0) return;
    sample.tokens.push_back({"vision", {}});
    sample.tokens.back().units.assign(images, {encoder_tokens, llm_tokens});
  });
}

void read_list(const std::string& path, Import& import) {
  each_entry(
      path, import,
      [&](Object entry) { return listed_file(path, read_text(need(entry, "token_lengths"), "token_lengths")); },
      [&](const std::string& name, const std::string& file) { read_lengths(file, name, import); });
}

void read(const std::string& path, Import& import) {
  const Probe found = probe(path);
  if (found.is_list && found.has({"token_lengths"})) return read_list(path, import);
  read_lengths(path, "omnibal", import);
}

}  // namespace

const Importer omnibal{"omnibal", "OmniBal length file, or a list of them (JSON)", "training", recognise, read};

}  // namespace orch::apps
