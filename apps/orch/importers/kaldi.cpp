// Kaldi data: utt2dur and reco2dur ("id seconds"), utt2num_frames ("id frames", with --frame-shift), segments ("id
// recording start end"). A file is known by the end of its name. A data folder adds the words of its `text`.
//
// `text` is joined in step with the other file, so both must be sorted by id as Kaldi demands (LC_ALL=C): constant
// memory.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "formats.hpp"
#include "orchmllm/io/line_reader.hpp"
#include "values.hpp"

namespace orch::apps {

namespace {

namespace fs = std::filesystem;

/// In the order in which a folder's files are taken: the first is nearest to what is trained on.
constexpr std::array<std::string_view, 4> names{"segments", "utt2dur", "utt2num_frames", "reco2dur"};

std::string_view known_name(std::string_view file) {
  for (const std::string_view name : names) {
    if (file.ends_with(name)) return name;
  }
  return {};
}

std::string file_in(const std::string& folder) {
  for (const std::string_view name : names) {
    const fs::path path = fs::path(folder) / name;
    if (fs::is_regular_file(path)) return path.string();
  }
  return {};
}

std::string recognise(const Probe& probe) {
  if (probe.is_folder) return file_in(probe.path).empty() ? "" : "the folder has " + file_in(probe.path);
  const std::string_view name = known_name(probe.name);
  return name.empty() ? "" : fmt::format("the name ends in {}", name);
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> words;
  while (words.size() < 6) {  // one more than any file has
    const std::string_view word = next_word(line);
    if (word.empty()) break;
    words.push_back(word);
  }
  return words;
}

/// The `text` file of a data folder, read in step with sorted ids.
class Texts {
 public:
  explicit Texts(const std::string& path) : lines_(path) {}

  /// Words of an utterance; ids must ascend from call to call.
  [[nodiscard]] std::uint64_t words(std::string_view id) {
    while (more_ && (id_.empty() || id_ < id)) advance();
    if (id_ == id) return words_;
    throw Incomplete(
        fmt::format("no line for {} in {}, expected one (sorted with LC_ALL=C)", in_quotes(id), lines_.path()));
  }

 private:
  void advance() {
    const auto line = lines_.next();
    more_ = line.has_value();
    if (!line) return;
    std::string_view rest = *line;
    const std::string_view id = next_word(rest);
    if (id < id_)
      throw InvalidInput::at(lines_.path(), lines_.line(), "the ids descend, expected them sorted with LC_ALL=C");
    id_ = id;
    words_ = count_words(rest);
  }

  io::LineReader lines_;
  std::string id_;
  std::uint64_t words_ = 0;
  bool more_ = true;
};

std::uint64_t frames_to_microseconds(std::string_view text, const Import& import) {
  if (!import.options.frame_shift) {
    throw InvalidInput("durations are in frames, expected --frame-shift SECONDS (Kaldi's own default is 0.01)");
  }
  return microseconds(parse_integer(text, "frames", 1, 0xffffffffU) * *import.options.frame_shift, "the duration");
}

std::uint64_t read_segment(const std::vector<std::string_view>& words) {
  const double start = parse_number(words[2], "start", 0, max_seconds);
  if (words[3] == "-1") throw Incomplete("the segment has no end (-1), expected seconds");
  const double end = parse_number(words[3], "end", 0, max_seconds);
  if (end <= start)
    throw InvalidInput(fmt::format("the segment goes from {} to {}, expected an end after its start", start, end));
  return microseconds(end - start, "the duration");
}

std::uint64_t read_duration(std::string_view name, const std::vector<std::string_view>& words, const Import& import) {
  const bool segments = name == "segments";
  const std::size_t expected = segments ? 4 : 2;
  // A fifth word of segments is a channel.
  if (words.size() != expected && !(segments && words.size() == 5)) {
    throw InvalidInput(
        fmt::format("{} words, expected {}", words.size(), segments ? "id, recording, start, end" : "id and value"));
  }
  if (segments) return read_segment(words);
  if (name == "utt2num_frames") return frames_to_microseconds(words[1], import);
  return parse_microseconds(words[1], "the duration");
}

void read(const std::string& path, Import& import) {
  const bool is_folder = fs::is_directory(path);
  const std::string file = is_folder ? file_in(path) : path;
  const std::string file_name = fs::path(file).filename().string();
  std::string_view plain = file_name;
  for (const std::string_view packed : {".gz", ".zst"}) {
    if (plain.ends_with(packed)) plain.remove_suffix(packed.size());
  }
  const std::string_view name = known_name(plain);
  if (name.empty()) {
    throw InvalidInput(
        fmt::format("{}: which Kaldi file this is cannot be told, expected a name that ends in segments, "
                    "utt2dur, utt2num_frames or reco2dur, or a folder with one of them",
                    path));
  }
  std::optional<Texts> texts;
  const fs::path text_path = fs::path(path) / "text";
  if (is_folder && name != "reco2dur" && fs::is_regular_file(text_path)) texts.emplace(text_path.string());
  if (!texts) import.note("no file with texts was read: text is 0");

  io::LineReader lines(file);
  while (const auto line = lines.next()) {
    const std::vector<std::string_view> words = split(*line);
    if (words.empty()) continue;
    import.record({file, lines.line(), ""}, "kaldi", [&](Sample& sample) {
      sample.id = words[0];
    sample.audio.push_back({read_duration(name, words, import)});
    if (texts) sample.text = import.tokens(texts->words(words[0]));
  });
}
}  // namespace

}  // namespace orch::apps

const Importer kaldi{"kaldi", "Kaldi data folder, or its segments, utt2dur, utt2num_frames, reco2dur", "training",
                     recognise, read};

}  // namespace orch::apps
