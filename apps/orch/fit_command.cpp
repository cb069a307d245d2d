// orch fit: coefficients of a cluster file from measured training runs.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlopt.hpp>
#include <sstream>

#include "coefficients.hpp"
#include "commands.hpp"
#include "common.hpp"
#include "measured_runs.hpp"

namespace orch::apps {

namespace {

struct FitOptions {
  std::string runs;
  std::string cluster;
  std::vector<std::string> keys;
  std::string out;
};

/// Runs of one cluster that coefficients may be fitted to.
std::vector<MeasuredRun> calibration_runs(const std::string& path, const std::string& cluster) {
  std::vector<MeasuredRun> runs = read_runs(path);
  std::erase_if(runs, [&](const MeasuredRun& run) { return !run.calibrate || run.cluster != cluster; });
  return runs;
}

double squared_errors(const std::vector<MeasuredRun>& runs, const sim::Cluster& cluster) {
  double sum = 0;
  for (const MeasuredRun& run : runs) {
    const double error = std::log1p(relative_error(run, simulate_run(run, cluster)));
    sum += error * error;
  }
  return sum;
}

/// Coefficients within their bounds as numbers from 0 to 1, and back.
struct Scale {
  const std::vector<const Coefficient*>& parameters;

  [[nodiscard]] sim::Cluster apply(sim::Cluster cluster, const std::vector<double>& x) const {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Coefficient& c = *parameters[i];
      c.in(cluster) = c.unit * (c.low + x[i] * (c.high - c.low));
    }
    return cluster;
  }
  [[nodiscard]] std::vector<double> of(sim::Cluster cluster) const {
    std::vector<double> x;
    for (const Coefficient* c : parameters) {
      x.push_back(std::clamp((c->in(cluster) / c->unit - c->low) / (c->high - c->low), 0.0, 1.0));
    }
    return x;
  }
};

/// Least squares of the logarithms of simulated over measured throughput (BOBYQA: bounded, without derivatives).
sim::Cluster best_fit(const sim::Cluster& cluster, const std::vector<const Coefficient*>& parameters,
                      const std::vector<MeasuredRun>& runs) {
  const Scale scale{parameters};
  struct Problem {
    const Scale& scale;
    const sim::Cluster& cluster;
    const std::vector<MeasuredRun>& runs;
  } problem{scale, cluster, runs};
  nlopt::opt search(nlopt::LN_BOBYQA, static_cast<unsigned>(parameters.size()));
  search.set_lower_bounds(0);
  search.set_upper_bounds(1);
  search.set_xtol_abs(1e-5);
  search.set_maxeval(2000);
  search.set_min_objective(
      [](const std::vector<double>& x, std::vector<double>&, void* data) {
        const auto& p = *static_cast<const Problem*>(data);
        return squared_errors(p.runs, p.scale.apply(p.cluster, x));
      },
      &problem);
  std::vector<double> x = scale.of(cluster);
  double least = 0;
  search.optimize(x, least);
  return scale.apply(cluster, x);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InvalidInput(path + ": cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void fit(const FitOptions& options) {
  require_distinct({options.runs, options.cluster}, {options.out});
  std::vector<const Coefficient*> parameters;
  for (const std::string& key : options.keys) parameters.push_back(&coefficient(key));
  const sim::Cluster cluster = sim::load_cluster(options.cluster);
  std::string text = read_file(options.cluster);
  for (const Coefficient* c : parameters) text = with_value(options.cluster, text, c->key, 1);  // all keys are there
  const std::vector<MeasuredRun> runs = calibration_runs(options.runs, cluster.name);
  if (runs.size() < parameters.size()) {
    throw InvalidInput(
        fmt::format("{}: {} runs of {} to calibrate with, expected at least as many as the {} coefficients",
                    options.runs, runs.size(), cluster.name, parameters.size()));
  }
  sim::Cluster fitted = best_fit(cluster, parameters, runs);
  const auto rms = [&](const sim::Cluster& c) {
    return 100 * std::sqrt(squared_errors(runs, c) / static_cast<double>(runs.size()));
  };
  sim::Cluster before = cluster;
  std::vector<std::vector<std::string>> table{{"coefficient", "before", "fitted"}};
  text = read_file(options.cluster);
  for (const Coefficient* c : parameters) {
    const double value = c->in(fitted) / c->unit;
    table.push_back({c->key, fmt::format("{:.4g}", c->in(before) / c->unit), fmt::format("{:.4g}", value)});
    text = with_value(options.cluster, text, c->key, value);
  }
  print_table(table);
  fmt::print("\nroot mean square error over {} runs: {:.2f} % before, {:.2f} % fitted\n", runs.size(), rms(cluster),
             rms(fitted));
  if (!options.out.empty()) write_text(text, options.out);
}

}  // namespace

void add_fit_command(CLI::App& app) {
  auto options = std::make_shared<FitOptions>();
  CLI::App* command = app.add_subcommand("fit", "Fit a cluster file's coefficients to measured training runs");
  command->add_option("--runs", options->runs, "Measured runs (CSV; sim/validation/README.md has the columns)")
      ->required();
  command->add_option("--cluster", options->cluster, "Cluster file; its runs are those with its name as stack")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--coefficient", options->keys, "Keys of the file to fit, e.g. gpu.gemm.sustained")
      ->required()
      ->delimiter(',');
  command->add_option("--out", options->out, "Write the cluster file with the fitted values")->type_name("FILE");
  command->footer(
      "Only runs marked \"calibrate\" are used. The sum of squared logarithms of simulated over measured throughput "
      "is\n"
      "minimised within physical bounds. Comments of the file are kept.\n"
      "Example:\n"
      "  orch fit --runs sim/validation/runs.csv --cluster sim/clusters/megatron-h100.toml \\\n"
      "           --coefficient gpu.gemm.half_depth,software.tensor_overlap --out fitted.toml");
  command->callback([options] { fit(*options); });
}

}  // namespace orch::apps
