// orch trace diff: how far two traces' distributions are from each other.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "commands.hpp"
#include "common.hpp"
#include "orchmllm/version.hpp"
#include "ranks.hpp"
#include "trace_values.hpp"

namespace orch::apps {

namespace {

constexpr std::size_t least_pairs = 100;

struct QuantityDiff {
  std::string quantity;
  std::size_t count[2];
  double median[2];  ///< 0 without values
  double ks, noise;
};

struct CorrelationDiff {
  std::string first, second;
  double rank_correlation[2];
};

struct TaskDiff {
  std::string task;
  double weight[2];
  std::vector<QuantityDiff> quantities;
  std::vector<CorrelationDiff> correlations;
};

/// Width / height to a hundredth (below 1: its inverse), since sides are whole pixels: without it, 640 × 480 and
/// 604 × 453 differ from 605 × 454.
void round_aspects(std::vector<double>& aspects) {
  for (double& aspect : aspects) {
    aspect = aspect >= 1 ? std::round(100 * aspect) / 100 : 100 / std::round(100 / aspect);
  }
}

QuantityDiff compare(const std::string& name, std::vector<double> a, std::vector<double> b) {
  if (name.ends_with(".aspect")) {
    round_aspects(a);
    round_aspects(b);
  }
  const auto median = [](const std::vector<double>& sorted) { return sorted.empty() ? 0 : sorted[sorted.size() / 2]; };
  return {name, {a.size(), b.size()}, {median(a), median(b)}, ks_distance(a, b), ks_noise(a.size(), b.size())};
}

TaskDiff compare(const std::string& name, const TaskValues& a, const TaskValues& b, double samples_a,
                 double samples_b) {
  TaskDiff diff{name, {static_cast<double>(a.samples) / samples_a, static_cast<double>(b.samples) / samples_b}, {}, {}};
  if (a.samples == 0 || b.samples == 0) return diff;
  std::set<std::string> names;
  for (const TaskValues* task : {&a, &b}) {
    for (const auto& [quantity, values] : task->quantities) names.insert(quantity);
  }
  static const QuantityValues none;
  const auto find = [](const TaskValues& task, const std::string& quantity) -> const QuantityValues& {
    const auto found = task.quantities.find(quantity);
    return found == task.quantities.end() ? none : found->second;
  };
  for (const std::string& quantity : names) {
    diff.quantities.push_back(compare(quantity, find(a, quantity).all, find(b, quantity).all));
  }
  for (auto first = names.begin(); first != names.end(); ++first) {
    for (auto second = std::next(first); second != names.end(); ++second) {
      const Pairs pairs_a = common(find(a, *first).of_sample, find(a, *second).of_sample);
      const Pairs pairs_b = common(find(b, *first).of_sample, find(b, *second).of_sample);
      if (pairs_a.size() < least_pairs || pairs_b.size() < least_pairs) continue;
      diff.correlations.push_back({*first, *second, {rank_correlation(pairs_a), rank_correlation(pairs_b)}});
    }
  }
  return diff;
}

/// A quantity's values in all tasks.
std::map<std::string, std::vector<double>> pooled(const TraceValues& trace) {
  std::map<std::string, std::vector<double>> all;
  for (const auto& [task, values] : trace.tasks) {
    for (const auto& [quantity, of_task] : values.quantities) {
      all[quantity].insert(all[quantity].end(), of_task.all.begin(), of_task.all.end());
    }
  }
  for (auto& [quantity, values] : all) std::sort(values.begin(), values.end());
  return all;
}

/// Marginals over all tasks: what can be compared where tasks have other names.
TaskDiff compare_pooled(const TraceValues& a, const TraceValues& b) {
  auto of_a = pooled(a);
  auto of_b = pooled(b);
  for (const auto& [quantity, values] : of_a) of_b.try_emplace(quantity);
  TaskDiff diff{"(all)", {1, 1}, {}, {}};
  for (const auto& [quantity, values] : of_b) diff.quantities.push_back(compare(quantity, of_a[quantity], values));
  return diff;
}

std::vector<TaskDiff> compare(const TraceValues& a, const TraceValues& b) {
  std::set<std::string> names;
  for (const TraceValues* trace : {&a, &b}) {
    for (const auto& [task, values] : trace->tasks) names.insert(task);
  }
  static const TaskValues none;
  const auto find = [](const TraceValues& trace, const std::string& task) -> const TaskValues& {
    const auto found = trace.tasks.find(task);
    return found == trace.tasks.end() ? none : found->second;
  };
  std::vector<TaskDiff> diffs;
  for (const std::string& task : names) {
    diffs.push_back(compare(task, find(a, task), find(b, task), static_cast<double>(a.info.samples),
                            static_cast<double>(b.info.samples)));
  }
  if (names.size() > 1) diffs.push_back(compare_pooled(a, b));
  return diffs;
}

/// The largest KS distance, difference of rank correlations and difference of weights.
struct Largest {
  double ks = 0, correlation = 0, weight = 0;
};

Largest largest_of(const std::vector<TaskDiff>& diffs) {
  Largest largest;
  for (const TaskDiff& task : diffs) {
    largest.weight = std::max(largest.weight, std::abs(task.weight[0] - task.weight[1]));
    for (const QuantityDiff& quantity : task.quantities) largest.ks = std::max(largest.ks, quantity.ks);
    for (const CorrelationDiff& pair : task.correlations) {
      largest.correlation =
          std::max(largest.correlation, std::abs(pair.rank_correlation[0] - pair.rank_correlation[1]));
    }
  }
  return largest;
}

Json diff_json(const TraceValues& a, const TraceValues& b, const std::vector<TaskDiff>& diffs) {
  const auto trace = [](const io::TraceInfo& info) {
    return Json{{"name", info.name}, {"hash", hex(info.hash)}, {"samples", info.samples}};
  };
  const Largest largest = largest_of(diffs);
  Json json{{"schema", "orchmllm.trace-diff/1"},
            {"version", ORCHMLLM_VERSION},
            {"a", trace(a.info)},
            {"b", trace(b.info)},
            {"largest", {{"ks", largest.ks}, {"rank_correlation", largest.correlation}, {"weight", largest.weight}}},
            {"tasks", Json::array()}};
  for (const TaskDiff& diff : diffs) {
    Json task{{"task", diff.task}, {"weight", diff.weight}, {"quantities", Json::array()}};
    task["correlations"] = Json::array();
    for (const QuantityDiff& q : diff.quantities) {
      task["quantities"].push_back(
          {{"quantity", q.quantity}, {"count", q.count}, {"median", q.median}, {"ks", q.ks}, {"ks_noise", q.noise}});
    }
    for (const CorrelationDiff& pair : diff.correlations) {
      task["correlations"].push_back(
          {{"between", {pair.first, pair.second}}, {"rank_correlation", pair.rank_correlation}});
    }
    json["tasks"].push_back(std::move(task));
  }
  return json;
}

void print_diff(const std::vector<TaskDiff>& diffs) {
  std::vector<std::vector<std::string>> weights{{"task", "% of A", "% of B"}};
  std::vector<std::vector<std::string>> table{
      {"quantity", "values A", "values B", "median A", "median B", "KS distance", "by chance"}};
  std::vector<std::pair<double, std::vector<std::string>>> pairs;
  for (const TaskDiff& diff : diffs) {
    const std::string name = diff.task.empty() ? "(none)" : diff.task;
    weights.push_back({name, fmt::format("{:.2f}", 100 * diff.weight[0]), fmt::format("{:.2f}", 100 * diff.weight[1])});
    for (const QuantityDiff& q : diff.quantities) {
      table.push_back({name + " " + q.quantity, std::to_string(q.count[0]), std::to_string(q.count[1]),
                       fmt::format("{:.6g}", q.median[0]), fmt::format("{:.6g}", q.median[1]),
                       fmt::format("{:.4f}", q.ks), fmt::format("{:.4f}", q.noise)});
    }
    for (const CorrelationDiff& pair : diff.correlations) {
      const double a = pair.rank_correlation[0];
      const double b = pair.rank_correlation[1];
      pairs.push_back({std::abs(a - b),
                       {fmt::format("{} {} ~ {}", name, pair.first, pair.second), fmt::format("{:.3f}", a),
                        fmt::format("{:.3f}", b), fmt::format("{:.3f}", std::abs(a - b))}});
    }
  }
  print_table(weights);
  fmt::print("\n");
  print_table(table);
  std::stable_sort(pairs.begin(), pairs.end(), [](const auto& x, const auto& y) { return x.first > y.first; });
  constexpr std::size_t most_pairs = 12;
  std::vector<std::vector<std::string>> correlations{{"rank correlation", "A", "B", "difference"}};
  for (std::size_t i = 0; i < std::min(most_pairs, pairs.size()); ++i) correlations.push_back(pairs[i].second);
  if (pairs.empty()) return;
  fmt::print("\n");
  print_table(correlations);
  if (pairs.size() > most_pairs) fmt::print("and {} more, closer than these\n", pairs.size() - most_pairs);
}

}  // namespace

void add_trace_diff_command(CLI::App& trace, int& exit_code) {
  struct Options {
    std::string a, b, json;
    std::optional<double> max_ks;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = trace.add_subcommand("diff", "How far the distributions of two traces are from each other");
  command->add_option("A", options->a, "Trace file")->required();
  command->add_option("B", options->b, "Trace file")->required();
  command
      ->add_option("--max-ks", options->max_ks,
                   "Exit with code 1 if a Kolmogorov-Smirnov distance or a difference of weights is above this")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--json", options->json, "Write the result as JSON; - is standard output")->type_name("FILE");
  command->footer(
      "Examples:\n"
      "  orch trace diff mine.jsonl.gz traces/omni-demo.jsonl.gz\n"
      "  orch trace diff yesterday.jsonl.gz today.jsonl.gz --max-ks 0.02 --json drift.json");
  command->callback([options, &exit_code] {
    require_distinct({options->a, options->b}, {options->json});
    const TraceValues a = read_values(options->a, 0);
    const TraceValues b = read_values(options->b, 0);
    if (a.info.samples == 0) throw InvalidInput(options->a + ": the trace has no samples");
    if (b.info.samples == 0) throw InvalidInput(options->b + ": the trace has no samples");
    const std::vector<TaskDiff> diffs = compare(a, b);
    if (!options->json.empty()) write_json(diff_json(a, b, diffs), options->json);
    if (options->json != "-") print_diff(diffs);
    const Largest largest = largest_of(diffs);
    if (options->max_ks && std::max(largest.ks, largest.weight) > *options->max_ks) exit_code = 1;
  });
}

}  // namespace orch::apps
