// Lhotse manifests, JSON or JSON Lines: recordings, supervisions and cuts (mono, multi, mixed, padding).
//
// A cut's text is that of its supervisions. A mixed cut lasts until its last track ends. A recording has no text.
// SPDX-License-Identifier: Apache-2.0
#include "formats.hpp"
#include "json_rows.hpp"

namespace orch::apps {

namespace {

std::string recognise(const Probe& probe) {
  if (probe.has({"sources", "sampling_rate", "num_samples"})) return "rows have sources, sampling_rate, num_samples";
  if (probe.has({"recording_id", "start", "duration"})) return "rows have recording_id, start, duration";
  if (probe.has({"id", "type", "tracks"})) return "rows are mixed cuts";
  return probe.has({"id", "start", "duration", "supervisions"}) ? "rows have start, duration, supervisions" : "";
}

/// Seconds; a recording may have samples only.
double read_duration(Object object) {
  if (const auto duration = find(object, "duration")) {
    return static_cast<double>(read_microseconds(*duration, "duration")) * 1e-6;
  }
  const auto samples = find(object, "num_samples");
  const auto rate = find(object, "sampling_rate");
  if (!samples || !rate) throw InvalidInput("no \"duration\" in the record, nor num_samples and sampling_rate");
  return read_number(*samples, "num_samples", 1, 1e15) / read_number(*rate, "sampling_rate", 1, 1e9);
}

/// Words of a supervision or of all that a cut has.
std::uint64_t words_of(Object object) {
  std::uint64_t words = 0;
  if (const auto text = find(object, "text")) words += count_words(read_text(*text, "text"));
  const auto supervisions = find(object, "supervisions");
  if (!supervisions) return words;
  for (const Value value : read_array(*supervisions, "supervisions")) {
    const auto text = find(read_object(value, "a supervision"), "text");
    if (text) words += count_words(read_text(*text, "text"));
  }
  return words;
}

void read_row(Object row, Import& import, Sample& sample) {
  sample.id = read_name(row, "id");
  double seconds = 0;
  std::uint64_t words = 0;
  if (const auto tracks = find(row, "tracks")) {
    for (const Value value : read_array(*tracks, "tracks")) {
      const Object track = read_object(value, "a track");
      const Object cut = read_object(need(track, "cut"), "cut");
      const auto offset = find(track, "offset");
      const double begin = offset ? read_number(*offset, "offset", 0, max_seconds) : 0;
      seconds = std::max(seconds, begin + read_duration(cut));
      words += words_of(cut);
    }
  } else {
    seconds = read_duration(row);
    words = words_of(row);
  }
  sample.audio.push_back({microseconds(seconds, "duration")});
  if (words > 0) sample.text = import.tokens(words);
  if (find(row, "sources")) import.note("recordings have no text: text is 0");
}

void read(const std::string& path, Import& import) {
  each_row(path, "lhotse", import, [&](Object row, Sample& sample) { read_row(row, import, sample); });
}

}  // namespace

const Importer lhotse{"lhotse", "Lhotse cuts, recordings or supervisions (JSON, JSON Lines)", "training", recognise,
                      read};

}  // namespace orch::apps
