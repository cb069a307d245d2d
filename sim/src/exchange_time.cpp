#include "orchmllm/sim/exchange_time.hpp"

#include "orchmllm/sim/fabric.hpp"
#include "route_stages.hpp"
#include "step_graph.hpp"

namespace orch::sim {

std::vector<ExchangeTime> exchange_times(const StepPlan& plan, const Cluster& cluster, NetworkModel network) {
  const LinkRates rates = cluster.exchange_rates();
  const Fabric fabric(cluster.links, rates, plan.topology);
  const auto time = [&](const Route& route) {
    double sum = 0;
    for (const Stage& stage : route_stages(route)) {
      sum += network == NetworkModel::endpoints
                 ? seconds(stage_traffic(stage, plan.topology, rates), rates)
                 : to_seconds(play_exchange(stage_messages(stage), fabric, rates).makespan);
    }
    return sum;
  };
  std::vector<ExchangeTime> times;
  for (const Route& route : plan.routes) {
    times.push_back({time(route), route.is_input() ? 0 : time(way_back(route))});
  }
  return times;
}

}  // namespace orch::sim
