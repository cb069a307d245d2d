// orch trace convert: import what other projects record of their data.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "commands.hpp"
#include "common.hpp"
#include "importers/importer.hpp"
#include "importers/values.hpp"
#include "orchmllm/io/trace_writer.hpp"

namespace orch::apps {

namespace {

struct Options {
  std::string format = "auto", in, out, image_size;
  ImportOptions import;
};

Image parse_image_size(const std::string& text) {
  const std::size_t x = text.find('x');
  if (x == std::string::npos) throw InvalidInput("--image-size " + text + ": expected WIDTHxHEIGHT, such as 448x448");
  const std::string_view all = text;
  return {parse_integer(all.substr(0, x), "--image-size: the width", 1, io::detail::max_pixels_a_side),
          parse_integer(all.substr(x + 1), "--image-size: the height", 1, io::detail::max_pixels_a_side)};
}

const Importer& choose(const Options& options) {
  if (options.format != "auto") return importer(options.format);
  const Recognition found = recognise(options.in);
  tell(fmt::format("{}: read as {} ({})", options.in, found.importer->name, found.reason));
  return *found.importer;
}

void report(const Import& import, const std::string& out) {
  const std::string skipped = fmt::format(", {} incomplete ones skipped", import.skipped());
  tell(fmt::format("{}: {} samples{}", out, import.samples(), import.skipped() > 0 ? skipped : ""));
  for (const std::string& note : import.notes()) tell("note: " + note);
}

void convert(Options& options) {
  if (!options.image_size.empty()) options.import.image_size = parse_image_size(options.image_size);
  require_distinct({options.in}, {options.out});
  const Importer& format = choose(options);
  const std::filesystem::path in = options.in;
  io::TraceInfo info;
  info.name = (in.has_filename() ? in : in.parent_path()).filename().string();
  info.source = fmt::format("{} ({})", info.name, format.name);
  if (!simdjson::validate_utf8(info.name)) throw InvalidInput(options.in + ": the name is not UTF-8");
  info.kind = format.kind;
  io::TraceWriter trace(options.out, info);
  Import import(options.import, [&](const Sample& sample) { trace.write(sample); });
  format.read(options.in, import);
  if (import.samples() == 0) {
    throw InvalidInput(fmt::format("{}: no samples ({} incomplete ones skipped)", options.in, import.skipped()));
  }
  trace.commit();
  report(import, options.out);
}

/// CLI11's own range lets "nan" pass.
std::string check_positive(const std::string& text) {
  double number = 0;
  if (CLI::detail::lexical_cast(text, number) && number > 0 && number <= 1e7) return {};
  return "expected a number above 0, at most 10000000";
}

std::string footer() {
  std::string text =
      "Examples:\n"
      "  orch trace convert chartqa_token_lengths.json chartqa.jsonl.gz\n"
      "  orch trace convert --from csv --columns audio=length/16000,id=file_path lengths.csv speech.jsonl.gz\n\n"
      "Formats:\n";
  for (const Importer* entry : importers()) text += fmt::format("  {:<14} {}\n", entry->name, entry->description);
  return text;
}

}  // namespace

void add_convert_command(CLI::App& trace) {
  auto options = std::make_shared<Options>();
  ImportOptions& import = options->import;
  CLI::App* command = trace.add_subcommand("convert", "Import lengths that other projects record of their data");
  command->add_option("--from", options->format, "Format (below), or auto: by content")->capture_default_str();
  command->add_option("IN", options->in, "File or folder to read")->required();
  command->add_option("OUT", options->out, "Trace file to write; .gz compresses")->required();
  const CLI::Validator positive(check_positive, "above 0");
  command
      ->add_option("--tokens-per-word", import.tokens_per_word, "Estimate of text tokens where a source has only text")
      ->check(positive);
  command->add_option("--image-size", options->image_size, "Size of images where a source does not say, as 448x448");
  command->add_option("--audio-seconds", import.audio_seconds, "Duration of clips where a source does not say")
      ->check(positive);
  command->add_option("--video-seconds", import.video_seconds, "Duration of videos where a source does not say")
      ->check(positive);
  command->add_option("--frame-shift", import.frame_shift, "Seconds a frame, where a source counts frames")
      ->check(positive);
  command
      ->add_option("--tokens-per-image", import.tokens_per_image,
                   "LLM tokens of an image, where a source counts images")
      ->check(CLI::Range(1U, 1U << 20U));
  command
      ->add_option("--encoder-ratio", import.encoder_ratio,
                   "Encoder tokens an LLM token, where a source has only those")
      ->check(CLI::Range(1U, 1U << 10U));
  command->add_option("--columns", import.columns, "csv: FIELD=COLUMN[/N],… (docs/traces.md)")->delimiter(',');
  command->add_option("--only", import.only, "Entries of a list or splits to read")
      ->delimiter(',')
      ->type_name("NAME,…");
  command->add_option("--seed", import.seed, "Seed, where a source holds distributions")->capture_default_str();
  command->add_flag("--skip-incomplete", import.skip_incomplete, "Leave out and count samples that lack a length");
  command->footer(footer());
  command->callback([options] { convert(*options); });
}

}  // namespace orch::apps
