// Mooncake request traces: JSON Lines {"timestamp": ms, "input_length", "output_length", "hash_ids"}. Prompt lengths
// become text; what is generated is no input of a training step and is left out.
// SPDX-License-Identifier: Apache-2.0
#include "formats.hpp"
#include "json_rows.hpp"

namespace orch::apps {

namespace {

std::string recognise(const Probe& probe) {
  return probe.has({"timestamp", "input_length", "output_length"}) ? "rows have timestamp, input_length, output_length"
                                                                   : "";
}

void read(const std::string& path, Import& import) {
  each_row(path, "mooncake", import, [](Object row, Sample& sample) {
    sample.text = read_integer(need(row, "input_length"), "input_length", 0, max_tokens);
    sample.arrival_seconds = read_number(need(row, "timestamp"), "timestamp", 0, 1e15) / 1000;  // milliseconds
  });
}

}  // namespace

const Importer mooncake{"mooncake", "Mooncake request trace (JSON Lines)", "inference", recognise, read};

}  // namespace orch::apps
