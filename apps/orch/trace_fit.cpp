// orch trace fit: a profile made from a trace, to share in place of the data.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "commands.hpp"
#include "common.hpp"
#include "copula.hpp"
#include "orchmllm/io/atomic_file.hpp"
#include "profile.hpp"
#include "quantile_fit.hpp"
#include "ranks.hpp"
#include "trace_values.hpp"

namespace orch::apps {

namespace {

constexpr std::size_t least_pairs = 100;     // samples that a correlation is taken from
constexpr std::size_t most_correlated = 32;  // quantities of a task

std::string toml_string(const std::string& text) { return Json(text).dump(); }

/// A correlation to three places; 0 if chance gives as much.
double fitted_correlation(const Pairs& pairs) {
  if (pairs.size() < least_pairs) return 0;
  const double noise = 2.6 / std::sqrt(static_cast<double>(pairs.size()));  // 99 of 100 independent pairs stay below
  if (std::abs(rank_correlation(pairs)) < noise) return 0;
  return std::round(copula_correlation(pairs) * 1000) / 1000;
}

class TaskText {
 public:
  TaskText(const TaskValues& task, const FitOptions& options) : task_(task), options_(options) {}

  [[nodiscard]] std::string write() {
    law("text", "text");
    if (task_.quantities.contains("supervised")) law("supervised", "supervised");
    if (task_.with_order > 0) {
      const double share = static_cast<double>(task_.with_order) / static_cast<double>(task_.with_units);
      out_ += fmt::format("interleaved = {:.4g}\n", share);
    }
    if (task_.quantities.contains("images.count")) units("images", {"pixels", "aspect"});
    if (task_.quantities.contains("audio.count")) units("audio", {"seconds"});
    if (task_.quantities.contains("video.count")) video();
    for (const auto& [phase, llm] : task_.llm) {
      if (task_.quantities.contains("tokens." + phase + ".count")) counted(phase, llm);
    }
    correlations();
    return out_;
  }

 private:
  void law(const std::string& key, const std::string& quantity) {
    const Limits limits = limits_of(quantity);
    std::vector<double> values = task_.quantities.at(quantity).all;
    for (double& value : values) value = std::clamp(value, limits.low, limits.high);
    const FittedLaw law = fit_law(std::move(values), limits.whole, options_);
    out_ += fmt::format("{} = {}\n", key, law.toml());
    names_.push_back(quantity);
  }

  void units(const std::string& section, const std::vector<std::string>& sizes) {
    out_ += fmt::format("\n[task.{}]\n", section);
    law("count", section + ".count");
    for (const std::string& size : sizes) law(size, section + "." + size);
    const double alike = fitted_correlation(task_.quantities.at(section + "." + sizes[0]).neighbours);
    if (alike > 0) out_ += fmt::format("alike = {:.3g}\n", alike);
  }

  /// Clips known by frames, or if fewer, by seconds; a profile gives one.
  void video() {
    const auto values = [&](const std::string& quantity) {
      const auto found = task_.quantities.find(quantity);
      return found == task_.quantities.end() ? std::size_t{0} : found->second.all.size();
    };
    std::vector<std::string> sizes{values("video.frames") >= values("video.seconds") ? "frames" : "seconds"};
    if (values("video.pixels") > 0) sizes.insert(sizes.end(), {"pixels", "aspect"});
    units("video", sizes);
  }

  void counted(const std::string& phase, const LlmLengths& llm) {
    std::vector<std::string> sizes{"encoder"};
    const bool ratio = llm.given && llm.same_ratio && llm.ratio > 0 && llm.ratio <= 1024;
    if (llm.given && !ratio) sizes.emplace_back("llm");
    units("tokens." + phase, sizes);
    if (ratio) out_ += fmt::format("merge = {}\n", llm.ratio);
  }

  void correlations() {
    const std::size_t n = std::min(names_.size(), most_correlated);
    Matrix matrix(n, std::vector<double>(n, 0.0));
    std::set<std::size_t> used;
    for (std::size_t i = 0; i < n; ++i) {
      matrix[i][i] = 1;
      for (std::size_t j = 0; j < i; ++j) {
        matrix[i][j] = fitted_correlation(
            common(task_.quantities.at(names_[i]).of_sample, task_.quantities.at(names_[j]).of_sample));
        if (matrix[i][j] != 0) used.insert({i, j});
      }
    }
    if (used.empty()) return;
    // Pairs are fitted one by one; where they contradict each other, all of them go towards 0.
    while (!cholesky(matrix)) {
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < i; ++j) matrix[i][j] = std::round(matrix[i][j] * 980) / 1000;
      }
    }
    std::vector<std::string> between;
    std::string rows;
    for (const std::size_t i : used) {
      for (const std::size_t j : used) {
        if (j < i) rows += fmt::format("{}{:g}", rows.empty() ? "" : ", ", matrix[i][j]);
      }
      between.push_back(toml_string(names_[i]));
    }
    out_ += fmt::format("\n[task.correlation]\nbetween = [{}]\nlower = [{}]\n", fmt::join(between, ", "), rows);
  }

  const TaskValues& task_;
  const FitOptions& options_;
  std::vector<std::string> names_;
  std::string out_;
};

std::string fitted_profile(const TraceValues& values, const FitOptions& options) {
  const std::string& license = values.info.license;
  std::string text = fmt::format(
      "# Fitted by `orch trace fit` to {} samples: at most {} knots a table, {:g} trimmed at each end.\n"
      "format = 2\nname = {}\nsource = {}\nlicense = {}\n",
      values.info.samples, options.knots, options.trim, toml_string(values.info.name),
      toml_string("fitted to " + values.info.name + (values.info.source.empty() ? "" : ": " + values.info.source)),
      toml_string(license.empty() ? "not stated" : license));
  for (const auto& [name, task] : values.tasks) {
    text += fmt::format("\n[[task]]\nname = {}\nweight = {}\nsource = \"fitted to {} samples\"\n", toml_string(name),
                        task.samples, task.samples);
    text += TaskText(task, options).write();
  }
  return text;
}

}  // namespace

void add_trace_fit_command(CLI::App& trace) {
  struct Options {
    std::string in, out;
    FitOptions fit;
    std::uint64_t least = 100;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = trace.add_subcommand("fit", "Make a profile from a trace, to share in place of the data");
  command->add_option("IN", options->in, "Trace file")->required();
  command->add_option("--out", options->out, "Profile to write (TOML)")->required();
  command->add_option("--knots", options->fit.knots, "Knots of a quantile table, at most; at least ten values a knot")
      ->check(CLI::Range(2U, 4096U))
      ->capture_default_str();
  command->add_option("--trim", options->fit.trim, "Hide this share of the values at each end, such as 0.001")
      ->check(CLI::Range(0.0, 0.25))
      ->capture_default_str();
  command->add_option("--min-samples", options->least, "Tasks with fewer samples are pooled as \"other\"")
      ->check(CLI::Range(1ULL, 1ULL << 32U))
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  orch trace fit my.jsonl.gz --out my-profile.toml\n"
      "  orch trace fit my.jsonl.gz --knots 17 --trim 0.001 --out coarse.toml");
  command->callback([options] {
    require_distinct({options->in}, {options->out});
    const TraceValues values = read_values(options->in, options->least);
    if (values.info.samples < options->least) {
      throw InvalidInput(fmt::format("{}: has {} samples, expected at least {} (--min-samples)", options->in,
                                     values.info.samples, options->least));
    }
    if (values.tasks.contains(pooled_task) && values.tasks.at(pooled_task).samples < options->least) {
      throw InvalidInput(
          fmt::format("{}: its small tasks have {} samples together, expected at least {} "
                      "(--min-samples) or none",
                      options->in, values.tasks.at(pooled_task).samples, options->least));
    }
    warn_about(values.info, options->in);
    io::AtomicFile file(options->out);
    file.write(fitted_profile(values, options->fit));
    file.commit();
  });
}

}  // namespace orch::apps
