// Modes of planner and simulator by the names that options, JSON and tables of measured runs have for them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/parallelism.hpp"
#include "orchmllm/sim/step.hpp"

namespace orch::apps {

inline const std::map<std::string, sim::DataParallel> data_parallel_names{
    {"fsdp", sim::DataParallel::fsdp},
    {"distributed-optimizer", sim::DataParallel::distributed_optimizer},
    {"replicated", sim::DataParallel::replicated}};
inline const std::map<std::string, sim::Recompute> recompute_names{{"none", sim::Recompute::none},
                                                                   {"selective", sim::Recompute::selective},
                                                                   {"alternate", sim::Recompute::alternate},
                                                                   {"full", sim::Recompute::full}};
inline const std::map<std::string, sim::Precision> precision_names{{"bf16", sim::Precision::bf16},
                                                                   {"fp8", sim::Precision::fp8}};

inline const std::map<std::string, sim::NetworkModel> network_names{{"endpoints", sim::NetworkModel::endpoints},
                                                                    {"fluid", sim::NetworkModel::fluid}};
inline const std::map<std::string, Granularity> granularity_names{{"sample", Granularity::sample},
                                                                  {"unit", Granularity::unit}};
inline const std::map<std::string, ExchangeSchedule> schedule_names{{"direct", ExchangeSchedule::direct},
                                                                    {"hierarchical", ExchangeSchedule::hierarchical},
                                                                    {"auto", ExchangeSchedule::automatic}};

template <class Value>
[[nodiscard]] std::string name_in(const std::map<std::string, Value>& names, Value value) {
  for (const auto& [name, candidate] : names) {
    if (candidate == value) return name;
  }
  return "";
}

}  // namespace orch::apps
