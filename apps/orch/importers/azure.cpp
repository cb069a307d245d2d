// Azure inference traces, CSV: TIMESTAMP, ContextTokens, GeneratedTokens, and NumImages in the multimodal one.
//
// t counts from the first row. ContextTokens holds the tokens of text and images together, so a row with images needs
// --tokens-per-image and --encoder-ratio. What is generated is no input of a training step and is left out.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>

#include "csv_reader.hpp"
#include "formats.hpp"
#include "values.hpp"

namespace orch::apps {

namespace {

std::string recognise(const Probe& probe) {
  const bool fits =
      probe.first_line.starts_with("TIMESTAMP,") && probe.first_line.find("ContextTokens") != std::string::npos;
  return fits ? "the header has TIMESTAMP and ContextTokens" : "";
}

/// Seconds since 1970 of "2023-11-16 18:17:03.9799600" or "2024-10-15T12:00:00.269Z", in units of 100 ns.
std::int64_t parse_timestamp(std::string_view text) {
  const auto fail = [&]() -> InvalidInput {
    return InvalidInput("TIMESTAMP is " + in_quotes(text) + ", expected YYYY-MM-DD hh:mm:ss with up to 7 decimals");
  };
  std::string_view time = text;
  if (time.ends_with('Z')) time.remove_suffix(1);
  constexpr std::string_view pattern = "dddd-dd-dd dd:dd:dd";
  if (time.size() < pattern.size()) throw fail();
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool digit = time[i] >= '0' && time[i] <= '9';
    if (pattern[i] == 'd' ? !digit : time[i] != pattern[i] && !(pattern[i] == ' ' && time[i] == 'T')) throw fail();
  }
  const auto number = [&](std::size_t at, std::size_t digits) {
    int value = 0;
    for (const char c : time.substr(at, digits)) value = value * 10 + (c - '0');
    return value;
  };
  const std::chrono::year_month_day date{std::chrono::year(number(0, 4)),
                                         std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                         std::chrono::day(static_cast<unsigned>(number(8, 2)))};
  if (!date.ok() || number(11, 2) > 23 || number(14, 2) > 59 || number(17, 2) > 60) throw fail();
  std::int64_t ticks = std::chrono::sys_days(date).time_since_epoch().count();
  ticks = ((ticks * 24 + number(11, 2)) * 60 + number(14, 2)) * 60 + number(17, 2);
  std::string_view decimals = time.substr(pattern.size());
  if (!decimals.empty() && (decimals.front() != '.' || decimals.size() < 2 || decimals.size() > 8)) throw fail();
  if (!decimals.empty()) decimals.remove_prefix(1);
  for (std::size_t i = 0; i < 7; ++i) {
    const char c = i < decimals.size() ? decimals[i] : '0';
    if (c < '0' || c > '9') throw fail();
    ticks = ticks * 10 + (c - '0');
  }
  return ticks;
}

void add_images(std::uint32_t images, std::uint32_t context, const Import& import, Sample& sample) {
  const auto& options = import.options;
  if (!options.tokens_per_image || !options.encoder_ratio) {
    throw Incomplete(
        fmt::format("ContextTokens holds text and {} images together, expected --tokens-per-image N and "
                    "--encoder-ratio K",
                    images));
  }
  const std::uint64_t llm = *options.tokens_per_image;
  if (images * llm > context) {
    throw Incomplete(
        fmt::format("{} images of {} tokens are more than the {} ContextTokens, expected a lower "
                    "--tokens-per-image",
                    images, llm, context));
  }
  const std::uint64_t encoder = llm * *options.encoder_ratio;
  sample.text = static_cast<std::uint32_t>(context - images * llm);
  sample.tokens.push_back({"vision", {}});
  sample.tokens.back().units.assign(images, {static_cast<std::uint32_t>(encoder), static_cast<std::uint32_t>(llm)});
}

void read(const std::string& path, Import& import) {
  CsvReader rows(path);
  if (!rows.next()) throw InvalidInput(path + ": the file is empty, expected a header");
  const auto time = rows.find("TIMESTAMP");
  const auto context = rows.find("ContextTokens");
  const auto images = rows.find("NumImages");
  if (!time || !context) throw InvalidInput::at(path, 1, "expected a header with TIMESTAMP and ContextTokens");
  std::optional<std::int64_t> first;
  while (rows.next()) {
    import.record({path, rows.line(), ""}, "azure", [&](Sample& sample) {
      const std::int64_t ticks = parse_timestamp(rows.fields()[*time]);
    if (!first) first = ticks;
    if (ticks < *first)
      throw InvalidInput("TIMESTAMP lies before that of the first row, expected rows in order of time");
    sample.arrival_seconds = static_cast<double>(ticks - *first) / 1e7;
    sample.text = parse_integer(rows.fields()[*context], "ContextTokens", 0, max_tokens);
    const std::uint32_t count = images ? parse_integer(rows.fields()[*images], "NumImages", 0, 1U << 16U) : 0;
    if (count > 0) add_images(count, sample.text, import, sample);
  });
}
}  // namespace

}  // namespace orch::apps

const Importer azure{"azure", "Azure LLM or multimodal inference trace (CSV)", "inference", recognise, read};

}  // namespace orch::apps
