// Measured training runs of text models (sim/validation/README.md has the columns), and the simulator's figures for
// them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orchmllm/model/architecture.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/uniform.hpp"

namespace orch::apps {

struct MeasuredRun {
  std::string id;
  bool calibrate = false;  ///< coefficients may be fitted to it
  std::string cluster;     ///< name of a cluster file
  sim::Precision precision = sim::Precision::bf16;
  std::string model;
  std::uint32_t gpus = 0;
  sim::UniformBatch batch;
  sim::Parallelism parallelism;
  bool compiled = false;
  double tokens_per_second_per_gpu = 0;
  std::optional<double> memory_gib;
  Mllm architecture;  ///< as the model file says, cut to the run's layers
};

/// Throws InvalidInput as FILE:LINE. Every row must be one that the simulator can run.
[[nodiscard]] std::vector<MeasuredRun> read_runs(const std::string& path);

struct SimulatedRun {
  double tokens_per_second_per_gpu = 0;
  double memory_gib = 0;
};

[[nodiscard]] SimulatedRun simulate_run(const MeasuredRun& run, const sim::Cluster& cluster);

/// simulated / measured − 1
[[nodiscard]] inline double relative_error(const MeasuredRun& run, const SimulatedRun& simulated) {
  return simulated.tokens_per_second_per_gpu / run.tokens_per_second_per_gpu - 1;
}

/// Measured memory of one GPU of a first pipeline stage.
struct MeasuredMemory {
  std::string id;
  std::string model;
  std::uint32_t gpus = 0;
  sim::UniformBatch batch;
  sim::Parallelism parallelism;
  bool sequence_parallel = false;
  double activation_gib = 0;
  double state_gib = 0;  ///< weights, gradients, optimizer
};

/// Throws InvalidInput as FILE:LINE.
[[nodiscard]] std::vector<MeasuredMemory> read_memory(const std::string& path);

struct SimulatedMemory {
  double activation_gib = 0;
  double state_gib = 0;
};

/// With the software that the measurements were made with: no flash kernel, dropout masks, optimizer not sharded.
[[nodiscard]] SimulatedMemory simulate_memory(const MeasuredMemory& row);

}  // namespace orch::apps
