// Quality and time of every solver on real and synthetic lengths, as JSON on standard output.
//
//   solver_table FOLDER   every *.jsonl.gz there (LLM lengths of mllm-10b) and log-normals, 32 samples a rank
//
// Rows: input, cost (linear: tokens; quadratic: 24576·l + l²), ranks, solver, gap, milliseconds (median of 5),
// over_mean = largest single cost / mean rank cost. Rows of "movement" (tolerance 1 %, homes of 32 consecutive samples,
// nodes of 8 ranks, a sample weighs its tokens) also have inter_node_part = tokens that cross nodes / all, to_bound =
// the same over the proven least (0: nothing must), to_placed_lpt = over what LPT + node-wise placement lets cross.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "lengths.hpp"
#include "orchmllm/balance/balance.hpp"
#include "orchmllm/balance/movement.hpp"
#include "orchmllm/io/trace.hpp"
#include "orchmllm/model/phase_lengths.hpp"
#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/orchestrate/sampler.hpp"
#include "orchmllm/sim/model_file.hpp"
#include "reference.hpp"

namespace {

using Costs = std::vector<orch::Cost>;
using Json = nlohmann::ordered_json;

template <class Call>
double median_ms(Call&& call) {
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return times[2];
}

void add_rows(Json& rows, const std::string& input, const std::string& cost, const Costs& costs, std::uint32_t ranks) {
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
  const double over_mean = static_cast<double>(*std::max_element(costs.begin(), costs.end())) / (total / ranks);
  const auto add = [&](const char* solver, const std::function<orch::Assignment()>& solve) {
    const double milliseconds = median_ms([&] { (void)solve(); });
    rows.push_back({{"input", input},
                    {"cost", cost},
                    {"ranks", ranks},
                    {"solver", solver},
                    {"gap", solve().gap()},
                    {"milliseconds", milliseconds},
                    {"over_mean", over_mean}});
  };
  const double reference = median_ms([&] { (void)reference::lpt(costs, ranks); });
  rows.push_back({{"input", input},
                  {"cost", cost},
                  {"ranks", ranks},
                  {"solver", "reference-lpt"},
                  {"milliseconds", reference},
                  {"over_mean", over_mean}});
  add("lpt", [&] { return orch::balance::greedy(costs, ranks); });
  add("lpt+refine", [&] {
    return orch::balance::refine(costs, orch::balance::greedy(costs, ranks).rank_of, ranks, {}, {.target_gap = 4e-4});
  });
  add("karmarkar-karp", [&] { return orch::balance::karmarkar_karp(costs, ranks); });
  add("balance", [&] { return orch::balance::balance(costs, ranks).assignment; });
  add("balance, equal counts", [&] {
    return orch::balance::balance(costs, ranks, {.constraints = {.counts = orch::Counts::equal}}).assignment;
  });
}

void add_movement_row(Json& rows, const std::string& input, const std::string& cost, const Costs& lengths,
                      const Costs& costs, std::uint32_t ranks) {
  const orch::Topology topology = orch::uniform_topology(ranks, 8);
  const std::vector<std::uint32_t> home = orch::home_ranks(ranks, static_cast<std::uint32_t>(costs.size() / ranks));
  const auto solve = [&] { return orch::balance::movement(costs, lengths, home, topology); };
  const double milliseconds = median_ms([&] { (void)solve(); });
  const orch::Movement moved = solve();
  const std::vector<std::uint32_t> flat = orch::balance::greedy(costs, ranks).rank_of;
  const auto placed =
      orch::placement::place_total(orch::traffic_matrix(home, flat, lengths, ranks), topology).total_bytes;
  const auto inter = static_cast<double>(moved.inter_node_bytes);
  const auto bound = static_cast<double>(moved.inter_node_bound);
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
  rows.push_back({{"input", input},
                  {"cost", cost},
                  {"ranks", ranks},
                  {"solver", "movement"},
                  {"gap", moved.assignment.gap()},
                  {"milliseconds", milliseconds},
                  {"over_mean", static_cast<double>(*std::max_element(costs.begin(), costs.end())) / (total / ranks)},
                  {"inter_node_part", inter / std::accumulate(lengths.begin(), lengths.end(), 0.0)},
                  {"to_bound", bound > 0 ? inter / bound : 0.0},
                  {"to_placed_lpt", placed > 0 ? inter / static_cast<double>(placed) : 0.0}});
}

Costs quadratic(Costs lengths) {
  for (orch::Cost& cost : lengths) cost = 24576 * cost + cost * cost;
  return lengths;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: solver_table FOLDER-OF-TRACES\n";
    return 2;
  }
  constexpr std::size_t per_rank = 32;
  Json rows = Json::array();
  for (const std::uint32_t ranks : {8U, 64U, 320U, 2560U}) {
    for (const char* sigma : {"0.5", "0.8", "1.0", "1.3"}) {
      const Costs lengths = orch::bench::log_normal_lengths(ranks * per_rank, std::stod(sigma), 1, 32768);
      const std::string input = std::string("log-normal ") + sigma;
      add_rows(rows, input, "linear", lengths, ranks);
      add_rows(rows, input, "quadratic", quadratic(lengths), ranks);
      if (ranks > 8) add_movement_row(rows, input, "linear", lengths, lengths, ranks);
      if (ranks > 8) add_movement_row(rows, input, "quadratic", lengths, quadratic(lengths), ranks);
    }
  }
  const orch::Mllm model = orch::sim::load_model("mllm-10b");
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    if (entry.path().string().ends_with(".jsonl.gz")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    orch::PhaseLengths lengths;
    const auto info =
        orch::io::read_trace(file.string(), [&](const orch::Sample& sample) { append(lengths, model, sample); });
    for (const std::uint32_t ranks : {8U, 64U, 320U, 2560U}) {
      Costs costs;
      for (const std::uint32_t sample : orch::Sampler(lengths.samples(), 1).next(ranks * per_rank)) {
        costs.push_back(lengths.llm_length[sample]);
      }
      add_rows(rows, info.name, "linear", costs, ranks);
      if (ranks > 8) add_movement_row(rows, info.name, "linear", costs, costs, ranks);
    }
  }
  std::cout << Json{{"samples_a_rank", per_rank}, {"rows", rows}}.dump(1) << "\n";
}
