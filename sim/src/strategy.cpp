#include "orchmllm/sim/strategy.hpp"

#include <fmt/format.h>

#include "orchmllm/base/error.hpp"
#include "orchmllm/placement/placement.hpp"

namespace orch::sim {

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> known = [] {
    const auto placer = [](const TrafficMatrix& bytes, const Topology& topology) {
      return placement::place(bytes, topology);
    };
    const auto options = [&](Balancer encoders, Balancer llm) {
      return StepOptions{.encoders = {.balancer = encoders}, .llm = {.balancer = llm}, .placer = placer};
    };
    const StepOptions home = options(Balancer::home, Balancer::home);
    const StepOptions published = options(Balancer::lpt, Balancer::lpt);
    StepOptions unplaced = published;
    unplaced.placer = {};
    return std::vector<Strategy>{
        {.name = "none", .options = home},
        {.name = "pre-balance", .options = home, .sorted_batches = true},
        {.name = "llm-only", .options = options(Balancer::home, Balancer::lpt)},
        {.name = "megatron", .options = home, .pipelined = true},
        {.name = "lpt", .options = unplaced},
        {.name = "orchmllm", .options = published},
        {.name = "orchmllm-allgather", .options = published, .exchange = ExchangeMethod::all_gather},
        {.name = "movement", .options = options(Balancer::movement, Balancer::movement)},
        {.name = "movement+split", .options = options(Balancer::movement, Balancer::movement), .splits = true},
    };
  }();
  return known;
}

std::string strategy_names() {
  std::string names;
  for (const Strategy& known : strategies()) names += (names.empty() ? "" : ", ") + known.name;
  return names;
}

const Strategy& strategy(const std::string& name) {
  for (const Strategy& candidate : strategies()) {
    if (candidate.name == name) return candidate;
  }
  throw InvalidInput(fmt::format("unknown strategy \"{}\", expected one of {}", name, strategy_names()));
}

}  // namespace orch::sim
