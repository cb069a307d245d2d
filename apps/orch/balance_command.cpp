// orch balance: any solver, on lengths or costs from a file or standard input.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "balance_table.hpp"
#include "commands.hpp"
#include "common.hpp"
#include "orchmllm/orchmllm.hpp"

namespace orch::apps {

namespace {

struct BalanceCommandOptions {
  std::string file;
  std::string json;
  std::string solver = "auto";
  std::string cost = "packed";
  std::string counts = "free";
  std::uint32_t ranks = 8;
  Cost gamma = 0, alpha = 1, beta = 0, conv_alpha = 0;
  std::uint64_t quadratic_tolerance = 0;
  std::uint32_t min_per_rank = 0;
  std::uint32_t max_per_rank = std::numeric_limits<std::uint32_t>::max();
  std::uint64_t capacity = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::uint32_t> speeds;
  double effort_seconds = 0.05;
  double target_gap = 1e-4;
  double min_gain = 0;
  double tolerance = 0.01;
  std::uint32_t ranks_per_node = 8;
  bool microbatches = false;
  std::uint32_t multiple_of = 1;
  bool may_move = false;
  bool split = false;
  std::uint32_t tensor_parallel = 1;
};

struct Result {
  Assignment assignment;
  std::string reason;
  Json more = Json::object();  ///< what only some solvers have
};

Constraints constraints_of(const BalanceCommandOptions& options, const BalanceTable& table) {
  Constraints constraints;
  constraints.counts = options.counts == "equal"        ? Counts::equal
                       : options.counts == "near-equal" ? Counts::near_equal
                                                        : Counts::free;
  constraints.min_per_rank = options.min_per_rank;
  constraints.max_per_rank = options.max_per_rank;
  constraints.speeds = options.speeds;
  constraints.groups = table.group;
  constraints.capacity = options.capacity;
  if (options.capacity != std::numeric_limits<std::uint64_t>::max()) {
    constraints.weights = table.weight.empty() ? std::span<const std::uint64_t>(table.length) : table.weight;
  }
  return constraints;
}

/// Solvers that know no constraints say so instead of ignoring them.
void require_unconstrained(const BalanceCommandOptions& options, const Constraints& constraints,
                           const std::string& what) {
  if (!constraints.unconstrained()) {
    throw InvalidInput(
        fmt::format("{} takes no counts, capacity, speeds or groups; --solver auto, refine and exact do", what));
  }
  if (options.min_gain > 0) throw InvalidInput(what + " takes no --min-gain; --solver auto does");
}

Result solve_lengths(const BalanceCommandOptions& options, const BalanceTable& table, const Constraints& constraints) {
  require_unconstrained(options, constraints, "--cost " + options.cost);
  if (options.cost == "padded") {
    return {balance::padded(table.length, options.ranks, {.alpha = options.alpha, .beta = options.beta}),
            "exact for padded costs"};
  }
  const ConvPackedCost cost{options.conv_alpha, {options.gamma, options.alpha, options.beta}};
  std::vector<ConvPackedCost::Batch> samples;
  for (const std::uint64_t length : table.length) samples.push_back({1, length, cost.packed(length)});
  if (options.solver == "exact") {
    const auto nodes = static_cast<std::uint64_t>(std::max(1.0, options.effort_seconds * 1e8));
    return {balance::exact(samples, options.ranks, cost, {.max_nodes = nodes}), "branch and bound"};
  }
  return {balance::conv_packed(samples, options.ranks, cost), "greedy for convolution + packed costs"};
}

Result solve_movement(const BalanceCommandOptions& options, const BalanceTable& table, std::span<const Cost> costs) {
  if (table.home.empty()) throw InvalidInput("--solver movement needs a column home: the rank that holds each sample");
  const Movement m = balance::movement(
      costs, table.weight.empty() ? std::span<const std::uint64_t>(table.length) : table.weight, table.home,
      uniform_topology(options.ranks, options.ranks_per_node), {.tolerance = options.tolerance});
  Result result{m.assignment, fmt::format("limit {} {}", m.limit, m.met ? "met" : "not met"), Json::object()};
  result.more = {{"limit", m.limit},
                 {"met", m.met},
                 {"moved_bytes", m.moved_bytes()},
                 {"moved_bytes_bound", m.moved_bound},
                 {"inter_node_bytes", m.inter_node_bytes},
                 {"inter_node_bytes_bound", m.inter_node_bound},
                 {"moved_samples", m.moved_samples},
                 {"peers", m.peers}};
  return result;
}

Result solve(const BalanceCommandOptions& options, const BalanceTable& table) {
  const Constraints constraints = constraints_of(options, table);
  if (options.cost != "packed") return solve_lengths(options, table, constraints);
  const PackedCost cost{options.gamma, options.alpha, options.beta};
  std::vector<Cost> costs;
  for (const std::uint64_t length : table.length) costs.push_back(cost(length));

  if (options.solver == "auto") {
    Balanced balanced = balance::balance(costs, options.ranks,
                                         {.constraints = constraints,
                                          .target_gap = options.target_gap,
                                          .effort_seconds = options.effort_seconds,
                                          .home_rank = table.home,
                                          .min_gain = options.min_gain});
    Result result{std::move(balanced.assignment), std::move(balanced.reason), Json::object()};
    if (!table.home.empty()) result.more = {{"moved", balanced.moved}, {"imbalance_before", balanced.imbalance_before}};
    return result;
  }
  if (options.solver == "exact") {
    const auto nodes = static_cast<std::uint64_t>(std::max(1.0, options.effort_seconds * 1e8));
    return {balance::exact(costs, options.ranks, constraints, {.max_nodes = nodes}), "branch and bound"};
  }
  if (options.solver == "refine") {
    const Balanced start = balance::balance(costs, options.ranks, {.constraints = constraints, .effort_seconds = 0});
    return {balance::refine(costs, start.assignment.rank_of, options.ranks, constraints,
                            {.target_gap = options.target_gap}),
            "LPT, then refined"};
  }
  require_unconstrained(options, constraints, "--solver " + options.solver);
  if (options.solver == "movement") return solve_movement(options, table, costs);
  if (options.solver == "lpt") return {balance::greedy(costs, options.ranks), "LPT"};
  if (options.solver == "karmarkar-karp")
    return {balance::karmarkar_karp(costs, options.ranks), "largest differencing"};
  return {balance::quadratic(table.length, options.ranks, cost, options.quadratic_tolerance), "the published greedy"};
}

Json assignment_json(const Assignment& assignment) {
  return {{"ranks", assignment.ranks},
          {"solver", assignment.solver},
          {"max_cost", assignment.max_cost()},
          {"mean_cost", assignment.mean_cost()},
          {"lower_bound", assignment.lower_bound},
          {"gap", assignment.gap()},
          {"imbalance", assignment.imbalance()},
          {"plan_hash", hex(assignment.fingerprint())},
          {"rank_of", assignment.rank_of},
          {"rank_cost", assignment.rank_cost}};
}

void write_result(const BalanceCommandOptions& options, const Json& json,
                  const std::vector<std::vector<std::string>>& table, const std::string& reason) {
  if (!options.json.empty()) write_json(json, options.json);
  if (options.json == "-") return;
  print_table(table);
  fmt::print("\n{}\n", reason);
}

void balance_assignment(const BalanceCommandOptions& options, const BalanceTable& table) {
  const auto begin = std::chrono::steady_clock::now();
  const Result result = solve(options, table);
  const double milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  Json json{{"schema", "orchmllm.balance/1"}, {"version", ORCHMLLM_VERSION}, {"samples", table.length.size()}};
  json.update(assignment_json(result.assignment));
  json["reason"] = result.reason;
  json.update(result.more);
  json["solve_ms"] = milliseconds;
  const Assignment& a = result.assignment;
  write_result(
      options, json,
      {{"samples", "ranks", "solver", "max cost", "mean cost", "lower bound", "gap %", "imbalance", "solve ms"},
       {std::to_string(table.length.size()), std::to_string(a.ranks), std::string(a.solver),
        std::to_string(a.max_cost()), fmt::format("{:.1f}", a.mean_cost()), std::to_string(a.lower_bound),
        fmt::format("{:.4f}", 100 * a.gap()), fmt::format("{:.4f}", a.imbalance()),
        fmt::format("{:.3f}", milliseconds)}},
      result.reason);
}

void plan_microbatches(const BalanceCommandOptions& options, const BalanceTable& table) {
  if (table.home.empty() && !options.may_move) {
    throw InvalidInput("--microbatches needs a column home, or --may-move");
  }
  const PackedCost cost{options.gamma, options.alpha, options.beta};
  std::vector<Cost> costs;
  for (const std::uint64_t length : table.length) costs.push_back(cost(length));
  const std::span<const std::uint64_t> tokens =
      table.weight.empty() ? std::span<const std::uint64_t>(table.length) : table.weight;
  const std::vector<std::uint32_t> home =
      table.home.empty() ? balance::greedy(costs, options.ranks).rank_of : table.home;
  const MicrobatchPlan plan = balance::microbatches(
      costs, tokens, home, options.ranks,
      {.token_cap = options.capacity, .multiple_of = options.multiple_of, .may_move = options.may_move});
  Json dummies = Json::array();
  for (const MicrobatchSlot& slot : plan.dummies)
    dummies.push_back({{"microbatch", slot.microbatch}, {"rank", slot.rank}});
  const Json json{{"schema", "orchmllm.microbatches/1"},
                  {"version", ORCHMLLM_VERSION},
                  {"samples", table.length.size()},
                  {"ranks", plan.ranks},
                  {"microbatches", plan.microbatches},
                  {"microbatches_bound", plan.microbatches_bound},
                  {"smallest_proven", plan.smallest_proven},
                  {"step_cost", plan.step_cost()},
                  {"lower_bound", plan.lower_bound},
                  {"gap", plan.gap()},
                  {"imbalance", plan.imbalance()},
                  {"plan_hash", hex(plan.fingerprint())},
                  {"dummies", dummies},
                  {"rank_of", plan.rank_of},
                  {"microbatch_of", plan.microbatch_of}};
  write_result(options, json,
               {{"samples", "ranks", "micro-batches", "smallest", "step cost", "lower bound", "gap %", "dummies"},
                {std::to_string(table.length.size()), std::to_string(plan.ranks), std::to_string(plan.microbatches),
                 plan.smallest_proven ? "proven" : fmt::format(">= {}", plan.microbatches_bound),
                 std::to_string(plan.step_cost()), std::to_string(plan.lower_bound),
                 fmt::format("{:.4f}", 100 * plan.gap()), std::to_string(plan.dummies.size())}},
               "step cost = sum over micro-batches of the slowest rank");
}

void plan_split(const BalanceCommandOptions& options, const BalanceTable& table) {
  const SplitPlan plan =
      balance::split(table.length, options.ranks, {options.gamma, options.alpha, options.beta},
                     {.ranks_per_node = options.ranks_per_node, .tensor_parallel = options.tensor_parallel});
  Json splits = Json::array();
  for (const SplitSample& split : plan.splits) {
    Json chunks = Json::array();
    for (const auto& member : split.chunks) {
      chunks.push_back({{member[0].begin, member[0].end}, {member[1].begin, member[1].end}});
    }
    splits.push_back({{"sample", split.sample},
                      {"first_rank", split.first_rank},
                      {"group", split.group},
                      {"padded_length", split.padded_length},
                      {"chunks", chunks}});
  }
  const Json json{{"schema", "orchmllm.split/1"},
                  {"version", ORCHMLLM_VERSION},
                  {"samples", table.length.size()},
                  {"ranks", options.ranks},
                  {"max_cost", plan.max_cost()},
                  {"lower_bound", plan.lower_bound},
                  {"whole_lower_bound", plan.whole_lower_bound},
                  {"gap", plan.gap()},
                  {"imbalance", plan.imbalance()},
                  {"plan_hash", hex(plan.fingerprint())},
                  {"splits", splits},
                  {"rank_of", plan.rank_of},
                  {"rank_cost", plan.rank_cost}};
  write_result(
      options, json,
      {{"samples", "ranks", "split", "max cost", "lower bound", "without splits at least", "gap %", "imbalance"},
       {std::to_string(table.length.size()), std::to_string(options.ranks), std::to_string(plan.splits.size()),
        std::to_string(plan.max_cost()), std::to_string(plan.lower_bound), std::to_string(plan.whole_lower_bound),
        fmt::format("{:.4f}", 100 * plan.gap()), fmt::format("{:.4f}", plan.imbalance())}},
      "rank_of of a split sample is no rank; its members stand under splits");
}

void run(const BalanceCommandOptions& options) {
  require_distinct({options.file}, {options.json});
  const BalanceTable table = read_balance_table(options.file, options.ranks);
  if (options.microbatches && options.split) throw InvalidInput("--microbatches and --split exclude each other");
  const bool packed_auto = options.cost == "packed" && options.solver == "auto" &&
                           constraints_of(options, table).speeds.empty() && options.counts == "free" &&
                           table.group.empty();
  if ((options.microbatches || options.split) && !packed_auto) {
    throw InvalidInput("--microbatches and --split take packed costs and no solver, counts, speeds or groups");
  }
  if (options.microbatches) return plan_microbatches(options, table);
  if (options.split) return plan_split(options, table);
  balance_assignment(options, table);
}

}  // namespace

void add_balance_command(CLI::App& app) {
  auto o = std::make_shared<BalanceCommandOptions>();
  CLI::App* command = app.add_subcommand("balance", "Balance lengths over ranks with any solver");
  command
      ->add_option(
          "FILE", o->file,
          "Lengths, one a line; CSV with a header of length, weight, group, home; or JSON; - reads standard input")
      ->required();
  command->add_option("--ranks", o->ranks, "Ranks")->check(CLI::Range(1U, 1U << 20U))->capture_default_str();
  command->add_option("--solver", o->solver, "auto chooses, and says why")
      ->check(CLI::IsMember({"auto", "lpt", "karmarkar-karp", "refine", "exact", "quadratic", "movement"}))
      ->capture_default_str();
  command->add_option("--cost", o->cost, "packed: gamma + alpha l + beta l^2; padded; conv-packed")
      ->check(CLI::IsMember({"packed", "padded", "conv-packed"}))
      ->capture_default_str();
  command->add_option("--gamma", o->gamma, "Cost of a sample")->capture_default_str();
  command->add_option("--alpha", o->alpha, "Cost of a token")->capture_default_str();
  command->add_option("--beta", o->beta, "Cost of a token pair")->capture_default_str();
  command->add_option("--conv-alpha", o->conv_alpha, "Cost of a padded token (conv-packed)")->capture_default_str();
  command->add_option("--counts", o->counts, "Samples on each rank")
      ->check(CLI::IsMember({"free", "equal", "near-equal"}))
      ->capture_default_str();
  command->add_option("--min-per-rank", o->min_per_rank, "Least samples on a rank")->capture_default_str();
  command->add_option("--max-per-rank", o->max_per_rank, "Most samples on a rank");
  command->add_option("--capacity", o->capacity,
                      "Most weight (without a column weight: length) on a rank or in a micro-batch");
  command->add_option("--speeds", o->speeds, "Speed of every rank, separated by commas")->delimiter(',');
  command->add_option("--effort", o->effort_seconds, "Rough limit of the solve time in seconds (auto, exact)")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--target-gap", o->target_gap, "Good enough: this far above the lower bound")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--min-gain", o->min_gain, "Keep home ranks if the maximum falls by no more than this share")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--quadratic-tolerance", o->quadratic_tolerance, "Tolerance of --solver quadratic, in tokens")
      ->capture_default_str();
  command->add_option("--tolerance", o->tolerance, "Of --solver movement: largest cost over the lower bound")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--ranks-per-node", o->ranks_per_node, "Of --solver movement and --split")
      ->check(CLI::Range(1U, 1U << 20U))
      ->capture_default_str();
  command->add_flag("--microbatches", o->microbatches, "Plan micro-batches under --capacity");
  command->add_option("--multiple-of", o->multiple_of, "Their number is a multiple of this")
      ->check(CLI::Range(1U, 1U << 20U));
  command->add_flag("--may-move", o->may_move, "They may move samples between ranks");
  command->add_flag("--split", o->split, "Split samples above the fair share over context-parallel groups");
  command->add_option("--tensor-parallel", o->tensor_parallel, "Of --split: padding to 2 cp tp tokens")
      ->check(CLI::Range(1U, 1U << 16U));
  command->add_option("--json", o->json, "Write the result as JSON; - is standard output")->type_name("FILE");
  command->footer(
      "Examples:\n"
      "  orch balance lengths.txt --ranks 64 --alpha 24576 --beta 1 --counts equal\n"
      "  orch balance samples.csv --ranks 8 --microbatches --capacity 16384 --json -");
  command->callback([o] { run(*o); });
}

}  // namespace orch::apps
