// Results of simulated strategies as JSON and as a table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "common.hpp"

namespace orch::apps {

[[nodiscard]] Json strategy_json(const sim::StrategyResult& result);
/// Where the step goes, in seconds and per cent.
void print_breakdown(const sim::StrategyResult& result);
/// Quantiles of steps, utilisation, what the run costs.
void print_totals(const sim::StrategyResult& result, const sim::Cluster& cluster);
/// A row for every step, with a header.
[[nodiscard]] std::string steps_csv(const sim::StrategyResult& result);
void print_strategies(const std::vector<sim::StrategyResult>& results, const sim::Cluster& cluster);

}  // namespace orch::apps
