// Options of orch-run, and what they say of a run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "common.hpp"

namespace orch::apps {

/// What carries the bytes, how long it is waited for, and which ranks are a node.
struct TransportOptions {
  std::string transport = "mpi";
  double timeout_seconds = 60;
  double spin_milliseconds = 100;
  int nccl_channels = 0;             ///< 0: as NCCL chooses
  std::uint32_t ranks_per_node = 0;  ///< 0: as hosts have them
};

struct ExecuteOptions : RunOptions, TransportOptions {
  std::vector<std::string> strategies{"orchmllm"};  ///< run one after the other
  std::string exchange = "direct";
  std::string verify = "full";
  std::string network = "endpoints";  ///< how predicted exchanges share links
  double compute_scale = 0;           ///< share of the model's operations that are run
};

struct CalibrateOptions : TransportOptions {
  std::string out;
  std::string extends;  ///< none: the shipped file that is nearest to the transport
  double seconds = 30;  ///< of measuring
};

/// What orch-run is asked for: a run, unless the subcommand `calibrate` stands there.
void add_execute_options(CLI::App& app, ExecuteOptions& options);
[[nodiscard]] CLI::App* add_calibrate_command(CLI::App& app, CalibrateOptions& options);
/// Throws CLI::ExtrasError for options of a run that stand before a subcommand: they would say nothing.
void require_none_before(const CLI::App& app, const CLI::App& command);
/// Throws CLI::RequiredError for a run that lacks an input; only without a subcommand are they required.
void require_inputs(const ExecuteOptions& options);

}  // namespace orch::apps
