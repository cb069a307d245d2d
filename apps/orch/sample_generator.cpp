#include "sample_generator.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <future>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "normal.hpp"
#include "orchmllm/io/atomic_file.hpp"
#include "trace_progress.hpp"

namespace orch::apps {

namespace {

const std::string image_kind = "image";
const std::string audio_kind = "audio";
const std::string video_kind = "video";

const std::string& kind_name(const UnitLaws& units) {
  if (units.kind == UnitKind::image) return image_kind;
  if (units.kind == UnitKind::audio) return audio_kind;
  return units.kind == UnitKind::counted ? units.phase : video_kind;
}

std::uint64_t rounded(double value) { return value > 0 ? static_cast<std::uint64_t>(value + 0.5) : 0; }

void append_integer(std::string& out, std::uint64_t value) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, static_cast<std::size_t>(end - digits));
}

/// Milliseconds as seconds with three places.
void append_seconds(std::string& out, double seconds) {
  const std::uint64_t milliseconds = std::max<std::uint64_t>(1, rounded(seconds * 1000));
  append_integer(out, milliseconds / 1000);
  const auto digit = [](std::uint64_t value) { return static_cast<char>('0' + value % 10); };
  const char places[4] = {'.', digit(milliseconds / 100), digit(milliseconds / 10), digit(milliseconds)};
  out.append(places, sizeof places);
}

void append_size(std::string& out, double pixels, double aspect) {
  out += '[';
  append_integer(out, std::max<std::uint64_t>(1, rounded(std::sqrt(pixels * aspect))));
  out += ',';
  append_integer(out, std::max<std::uint64_t>(1, rounded(std::sqrt(pixels / aspect))));
  out += ']';
}

void append_clip(std::string& out, const UnitLaws& units, const double* u) {
  if (units.kind == UnitKind::video_frames) {
    out += R"({"frames":)";
    append_integer(out, std::max<std::uint64_t>(1, rounded(units.sizes[0].at(u[0]))));
  } else {
    out += R"({"seconds":)";
    append_seconds(out, units.sizes[0].at(u[0]));
  }
  if (units.sizes.size() > 1) {
    out += R"(,"size":)";
    append_size(out, units.sizes[1].at(u[1]), units.sizes[2].at(u[2]));
  }
  out += '}';
}

void append_counted(std::string& out, const UnitLaws& units, const double* u) {
  std::uint64_t encoder = rounded(units.sizes[0].at(u[0]));
  if (units.merge > 0) encoder -= encoder % units.merge;
  out += '[';
  append_integer(out, encoder);
  out += ',';
  if (units.sizes.size() > 1) {
    append_integer(out, rounded(units.sizes[1].at(u[1])));
  } else if (units.merge > 0) {
    append_integer(out, encoder / units.merge);
  } else {
    out += "null";
  }
  out += ']';
}

/// One unit whose sizes stand at `u`.
void append_unit(std::string& out, const UnitLaws& units, const double* u) {
  if (units.kind == UnitKind::image) {
    append_size(out, units.sizes[0].at(u[0]), units.sizes[1].at(u[1]));
  } else if (units.kind == UnitKind::audio) {
    append_seconds(out, units.sizes[0].at(u[0]));
  } else if (units.kind == UnitKind::counted) {
    append_counted(out, units, u);
  } else {
    append_clip(out, units, u);
  }
}

/// The list of a sample's units; the first one stands at `u`, the others beside it if they are alike.
void append_units(std::string& out, const UnitLaws& units, const double* u, std::uint64_t count, Random& random) {
  out += '[';
  append_unit(out, units, u);
  std::array<double, 3> own{};
  const double rest = std::sqrt(1 - units.alike * units.alike);
  for (std::uint64_t i = 1; i < count; ++i) {
    for (std::size_t k = 0; k < units.sizes.size(); ++k) {
      own[k] = random.uniform();
      if (units.alike == 0) continue;
      own[k] = normal().cdf(units.alike * normal().quantile(u[k]) + rest * normal().quantile(own[k]));
    }
    out += ',';
    append_unit(out, units, own.data());
  }
  out += ']';
}

/// Units at random places of the text, kinds in random order.
void append_order(std::string& out, std::vector<const std::string*>& kinds, std::uint64_t text, Random& random) {
  for (std::size_t i = kinds.size(); i > 1; --i) std::swap(kinds[i - 1], kinds[random.below(i)]);
  std::vector<std::uint64_t> places(kinds.size());
  for (std::uint64_t& place : places) place = random.below(text + 1);
  std::sort(places.begin(), places.end());
  places.push_back(text);
  out += R"(,"order":[)";
  std::uint64_t written = 0;
  const std::size_t begin = out.size();
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] > written) {
      append_integer(out, places[i] - written);
      out += ',';
      written = places[i];
    }
    if (i == kinds.size()) break;
    out += '"';
    out += *kinds[i];
    out += "\",";
  }
  if (out.size() > begin) out.pop_back();
  out += ']';
}

}  // namespace

SampleGenerator::SampleGenerator(TaskProfiles profile, std::uint64_t seed) : profile_(std::move(profile)), seed_(seed) {
  double weights = 0;
  for (const TaskLaws& task : profile_.tasks) {
    until_.push_back(weights += task.weight);
    begins_.push_back(R"(","task":)" + nlohmann::json(task.name).dump() + R"(,"text":)");
  }
}

void SampleGenerator::draw(const TaskLaws& task, Random& random, Draws& u) const {
  std::size_t quantities = 2;
  for (const UnitLaws& units : task.units) quantities += 1 + units.sizes.size();
  for (std::size_t i = 0; i < quantities; ++i) u[i] = random.uniform();
  Draws independent;
  const Correlations& correlations = task.correlations;
  for (std::size_t i = 0; i < correlations.quantities.size(); ++i) {
    independent[i] = normal().quantile(u[correlations.quantities[i]]);
    double x = 0;
    for (std::size_t j = 0; j <= i; ++j) x += correlations.lower[i][j] * independent[j];
    u[correlations.quantities[i]] = normal().cdf(x);
  }
}

void SampleGenerator::append_sample(std::uint64_t index, std::string& out, Kinds& kinds) const {
  Random random(seed_, index);
  const auto found = std::upper_bound(until_.begin(), until_.end() - 1, random.uniform() * until_.back());
  const auto t = static_cast<std::size_t>(found - until_.begin());
  const TaskLaws& task = profile_.tasks[t];
  Draws u;
  draw(task, random, u);

  out += R"({"id":"s)";
  append_integer(out, index);
  out += begins_[t];
  const std::uint64_t text = rounded(task.text.at(u[0]));
  append_integer(out, text);
  kinds.clear();
  bool in_tokens = false;
  std::size_t at = 2;
  for (const UnitLaws& units : task.units) {
    const std::uint64_t count = rounded(units.count.at(u[at]));
    const double* sizes = u.data() + at + 1;
    at += 1 + units.sizes.size();
    if (count == 0) continue;
    if (units.kind == UnitKind::counted) {
      out += std::exchange(in_tokens, true) ? ",\"" : R"(,"tokens":{")";
      out += units.phase;
      out += "\":";
    } else {
      out += units.kind == UnitKind::image   ? R"(,"images":)"
             : units.kind == UnitKind::audio ? R"(,"audio":)"
                                             : R"(,"video":)";
    }
    append_units(out, units, sizes, count, random);
    if (task.interleaved > 0) kinds.insert(kinds.end(), count, &kind_name(units));
  }
  if (in_tokens) out += '}';
  if (!kinds.empty() && random.uniform() < task.interleaved) append_order(out, kinds, text, random);
  if (task.supervised) {
    out += R"(,"supervised":)";
    append_integer(out, std::min(text, rounded(task.supervised->at(u[1]) * static_cast<double>(text))));
  }
  out += "}\n";
}

void SampleGenerator::append(std::uint64_t begin, std::uint64_t end, std::string& out) const {
  Kinds kinds;
  for (std::uint64_t i = begin; i < end; ++i) append_sample(i, out, kinds);
}

void generate_samples(const SampleGenerator& generator, std::uint64_t samples, unsigned threads,
                      const std::string& path) {
  const TaskProfiles& profile = generator.profile();
  const nlohmann::ordered_json metadata{{"orchmllm_trace", 1},      {"name", profile.name},
                                        {"source", profile.source}, {"license", profile.license},
                                        {"kind", "training"},       {"samples", samples}};
  io::AtomicFile file(path);
  file.write(metadata.dump() + "\n");

  constexpr std::uint64_t block = 8192;  // samples; about 1 MB
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::string> blocks(threads);
  SampleProgress progress("generating " + path, samples);
  for (std::uint64_t begin = 0; begin < samples; begin += block * threads) {
    const auto fill = [&](std::size_t k) {
      const std::uint64_t first = std::min(samples, begin + k * block);
      blocks[k].clear();
      generator.append(first, std::min(samples, first + block), blocks[k]);
    };
    std::vector<std::future<void>> others;
    for (std::size_t k = 1; k < threads; ++k) others.push_back(std::async(std::launch::async, fill, k));
    fill(0);
    for (std::future<void>& other : others) other.get();
    for (const std::string& lines : blocks) file.write(lines);
    progress.to(std::min(samples, begin + block * threads));
  }
  file.commit();
}

}  // namespace orch::apps
