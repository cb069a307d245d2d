// ServeGen clients: NAME-trace.csv (arrivals, a window a line: start second, rate, variation, law, its parameters) and
// NAME-dataset.json (sizes: window → quantity → a string "{value: probability, …}"). Either names both.
//
// The files hold distributions, so samples are drawn: --seed. In a window, times between arrivals follow its law (Gamma
// or Weibull with the given shape) with mean 1 / rate; sizes come from the latest window of the JSON that has begun.
// Logarithms and powers are the C library's: another one may move an arrival by a microsecond. Image and video tokens
// are the LLM's; --encoder-ratio gives the encoder's. Quantities within a sample are drawn independently.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "csv_reader.hpp"
#include "formats.hpp"
#include "json_rows.hpp"
#include "orchmllm/base/random.hpp"

namespace orch::apps {

namespace {

constexpr std::string_view trace_end = "-trace.csv";
constexpr std::string_view dataset_end = "-dataset.json";
constexpr double most_arrivals = 1 << 24;  ///< in a window

std::string recognise(const Probe& probe) {
  if (probe.is_list && probe.has({"output_tokens"})) return "windows have output_tokens";
  const bool is_trace = probe.name.ends_with(trace_end) && (probe.first_line.find(",Gamma,") != std::string::npos ||
                                                            probe.first_line.find(",Weibull,") != std::string::npos ||
                                                            probe.first_line.ends_with(",0,0,,0,0"));
  return is_trace ? "the name ends in -trace.csv and windows have a law" : "";
}

/// Values with cumulative probabilities.
class Histogram {
 public:
  /// Of a Python dictionary's text, {136: 0.25, 372: 0.75}.
  explicit Histogram(std::string_view text, const std::string& what) {
    const auto fail = [&] {
      return InvalidInput(what + " is " + in_quotes(text) + ", expected {value: probability, …}");
    };
    if (!text.starts_with('{') || !text.ends_with('}')) throw fail();
    std::string_view rest = text.substr(1, text.size() - 2);
    double sum = 0;
    while (!rest.empty()) {
      const std::string_view entry = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
      const std::size_t colon = entry.find(':');
      if (colon == std::string_view::npos) throw fail();
      std::string_view value = entry.substr(0, colon), probability = entry.substr(colon + 1);
      values_.push_back(parse_integer(next_word(value), what, 0, 1U << 24U));
      sum += parse_number(next_word(probability), what + " (probability)", 0, 1);
      until_.push_back(sum);
    }
    if (values_.empty() || !(sum > 0)) throw fail();
  }

  [[nodiscard]] std::uint32_t draw(Random& random) const {
    const double u = random.uniform() * until_.back();
    const auto found = std::upper_bound(until_.begin(), until_.end() - 1, u);
    return values_[static_cast<std::size_t>(found - until_.begin())];
  }

 private:
  std::vector<std::uint32_t> values_;
  std::vector<double> until_;
};

/// What is drawn in a window.
struct Sizes {
  std::map<std::string, Histogram, std::less<>> histograms;

  [[nodiscard]] std::uint32_t draw(std::string_view name, Random& random) const {
    const auto found = histograms.find(name);
    return found == histograms.end() ? 0 : found->second.draw(random);
  }
};

using Windows = std::map<double, Sizes>;  ///< by start second

Windows read_dataset(const std::string& path) {
  Windows windows;
  io::JsonItems entries = io::JsonItems::members(path);
  while (const auto entry = entries.next()) {
    try {
      Sizes& sizes = windows[parse_number(entry->key, "the window", 0, 1e12)];
      for (const auto field : read_object(entry->value, "the window")) {
        const std::string name(field.key);
        sizes.histograms.insert_or_assign(name, Histogram(read_text(field.value, name), name));
      }
      if (!sizes.histograms.contains("text_tokens") && !sizes.histograms.contains("input_tokens")) {
        throw InvalidInput("no \"text_tokens\" or \"input_tokens\" in the window");
      }
    } catch (const InvalidInput& error) {
      throw InvalidInput::at(path, entry->line, fmt::format("window \"{}\": {}", entry->key, error.what()));
    }
  }
  if (windows.empty()) throw InvalidInput(path + ": no windows");
  return windows;
}

/// Times between arrivals with mean 1.
class Law {
 public:
  Law(const std::string& name, double shape) : shape_(shape), is_gamma_(name == "Gamma") {
    if (!is_gamma_ && name != "Weibull")
      throw InvalidInput("the law is " + in_quotes(name) + ", expected Gamma or Weibull");
    mean_ = is_gamma_ ? shape : std::tgamma(1 + 1 / shape);
  }

  [[nodiscard]] double draw(Random& random) const { return (is_gamma_ ? gamma(random) : weibull(random)) / mean_; }

 private:
  [[nodiscard]] static double positive(Random& random) { return 1 - random.uniform(); }  // (0, 1]

  [[nodiscard]] double weibull(Random& random) const { return std::pow(-std::log(positive(random)), 1 / shape_); }

  /// Marsaglia and Tsang 2000; below shape 1 by their power of a uniform number.
  [[nodiscard]] double gamma(Random& random) const {
    const double shape = shape_ < 1 ? shape_ + 1 : shape_;
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = normal(random);
      const double v = std::pow(1 + c * x, 3);
      if (v <= 0 || std::log(positive(random)) >= x * x / 2 + d - d * v + d * std::log(v)) continue;
      return shape_ < 1 ? d * v * std::pow(positive(random), 1 / shape_) : d * v;
    }
  }

  /// Box and Muller 1958.
  [[nodiscard]] static double normal(Random& random) {
    const double radius = std::sqrt(-2 * std::log(positive(random)));
    return radius * std::cos(2 * 3.14159265358979323846 * random.uniform());
  }

  double shape_;
  double mean_ = 1;
  bool is_gamma_;
};

struct Arrivals {
  std::uint64_t line = 0;
  double start = 0;
  double rate = 0;  ///< a second
  std::optional<Law> law;
};

Arrivals read_window(const std::vector<std::string>& cells, std::uint64_t line) {
  if (cells.size() != 6) {
    throw InvalidInput(
        fmt::format("{} fields, expected 6: start, rate, variation, law and its two parameters", cells.size()));
  }
  Arrivals window{line, parse_number(cells[0], "the start", 0, 1e12), parse_number(cells[1], "the rate", 0, 1e6), {}};
  if (window.rate > 0) window.law.emplace(cells[3], parse_number(cells[4], "the law's shape", 1e-2, 1e4));
  return window;
}

std::vector<Arrivals> read_arrivals(const std::string& path) {
  CsvReader rows(path);
  std::vector<Arrivals> windows;
  while (rows.next()) {
    try {
      windows.push_back(read_window(rows.fields(), rows.line()));
      if (windows.size() > 1 && windows.back().start <= windows[windows.size() - 2].start) {
        throw InvalidInput("the start does not ascend, expected windows in order of time");
      }
    } catch (const InvalidInput& error) {
      throw InvalidInput::at(path, rows.line(), error.what());
    }
  }
  if (windows.size() < 2)
    throw InvalidInput(path + ": expected two windows at least, their distance is a window's length");
  return windows;
}

/// Units of a modality, appended to those of the phase.
void draw_units(const Sizes& sizes, const std::string& modality, const char* phase, const Import& import,
                Random& random, Sample& sample) {
  const std::uint32_t count = sizes.draw(modality + "_count", random);
  for (std::uint32_t i = 0; i < std::min(count, 1U << 16U); ++i) {
    const std::uint64_t llm = sizes.draw(modality + "_tokens", random);
    if (llm == 0) continue;  // a modality that the client does not use has count 1 and 0 tokens
    if (!import.options.encoder_ratio) {
      throw Incomplete(modality + " tokens are the LLM's, expected --encoder-ratio K for the encoder's");
    }
    const std::uint64_t encoder = std::min(llm * *import.options.encoder_ratio, max_tokens);
    if (sample.tokens.empty() || sample.tokens.back().phase != phase) sample.tokens.push_back({phase, {}});
    sample.tokens.back().units.push_back({static_cast<std::uint32_t>(encoder), static_cast<std::uint32_t>(llm)});
  }
}

void draw_sample(const Sizes& sizes, double t, const Import& import, Random& random, Sample& sample) {
  sample.arrival_seconds = std::round(t * 1e6) / 1e6;
  sample.text = sizes.draw(sizes.histograms.contains("text_tokens") ? "text_tokens" : "input_tokens", random);
  draw_units(sizes, "image", "vision", import, random, sample);
  draw_units(sizes, "video", "vision", import, random, sample);
  draw_units(sizes, "audio", "audio", import, random, sample);
}

void draw_window(const std::string& path, const Arrivals& window, double end, const Sizes& sizes, Import& import,
                 Random& random) {
  if ((end - window.start) * window.rate > most_arrivals) {
    throw InvalidInput::at(path, window.line, fmt::format("more than {} arrivals in the window", most_arrivals));
  }
  double t = window.start;
  for (std::uint64_t drawn = 0; drawn < 2 * static_cast<std::uint64_t>(most_arrivals); ++drawn) {
    t += window.law->draw(random) / window.rate;
    if (t >= end) return;
    import.record({path, window.line, ""}, "servegen", [&](Sample& sample) { draw_sample(sizes, t, import, random, sample);
  });
}
}  // namespace

void read(const std::string& path, Import& import) {
  std::string base = path;
  for (const std::string_view end : {trace_end, dataset_end}) {
    if (path.ends_with(end)) base = path.substr(0, path.size() - end.size());
  }
  if (base == path)
    throw InvalidInput(path + ": expected a name that ends in -trace.csv or -dataset.json, with the other beside it");
  const std::string trace = base + std::string(trace_end), dataset = base + std::string(dataset_end);
  const Windows sizes = read_dataset(dataset);
  const std::vector<Arrivals> arrivals = read_arrivals(trace);
  Random random(import.options.seed);
  import.note(fmt::format("samples are drawn from distributions with seed {}", import.options.seed));
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    if (arrivals[i].rate == 0) continue;
    const std::size_t before = i + 1 < arrivals.size() ? i : i - 1;  // the last is as long as the one before
    const double end = arrivals[i].start + (arrivals[before + 1].start - arrivals[before].start);
    auto latest = sizes.upper_bound(arrivals[i].start);
    if (latest != sizes.begin()) --latest;
    draw_window(trace, arrivals[i], end, latest->second, import, random);
  }
}

}  // namespace orch::apps

const Importer servegen{"servegen", "ServeGen client: NAME-trace.csv with NAME-dataset.json", "inference", recognise,
                        read};

}  // namespace orch::apps
