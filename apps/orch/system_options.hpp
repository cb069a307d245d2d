// Options of simulate and compare beside those of a run: how the model is spread, what disturbs it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common.hpp"

namespace orch::apps {

struct SystemOptions : RunOptions {
  Granularity granularity = Granularity::sample;  ///< of encoders' phases
  bool padded = false;                            ///< LLM sequences
  std::uint32_t shard = 0;                        ///< 0 = all instances
  std::uint32_t tensor = 1;
  std::uint32_t context = 1;
  std::uint32_t pipeline = 1;
  std::uint32_t virtual_stages = 1;
  std::uint32_t micro_batches = 1;
  std::uint32_t micro_batch = 1;
  sim::DataParallel data_parallel = sim::DataParallel::fsdp;
  sim::Recompute recompute = sim::Recompute::full;
  std::optional<sim::Precision> precision;
  sim::NetworkModel network = sim::NetworkModel::endpoints;
  std::optional<double> plan_seconds;
  bool measure_planning = false;
  bool expose_planning = false;
  std::vector<std::string> slow_gpus;
  std::vector<std::string> slow_links;
  double jitter = 0;
  std::optional<std::uint32_t> lose_node;
  std::uint32_t checkpoint_every = 100;
  double restart_seconds = 600;

  [[nodiscard]] sim::Configuration configuration() const;
  /// What outputs say of these options, beside the parallelism.
  [[nodiscard]] Json settings() const;
  /// A strategy as these options have it.
  [[nodiscard]] sim::Strategy strategy_for_run(const std::string& name) const;
  /// The cluster as these options have it.
  [[nodiscard]] sim::Cluster cluster_for_run(const sim::Cluster& read) const;
};

void add_system_options(CLI::App& command, SystemOptions& options);

}  // namespace orch::apps
