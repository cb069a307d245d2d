#include "plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "mode_names.hpp"
#include "orchmllm/exchange/hierarchical.hpp"
#include "orchmllm/exchange/link_traffic.hpp"
#include "orchmllm/orchestrate/sampler.hpp"
#include "orchmllm/placement/placement.hpp"
#ifdef ORCH_HAVE_ILP
#include "orchmllm/placement/ilp.hpp"
#endif

namespace orch::apps {

std::vector<std::pair<std::string, std::string>> PlanMode::named() const {
  return {{"balance", balance},
          {"granularity", granularity},
          {"placement", places() ? placement : "none"},
          {"objective", places() ? objective : "none"},
          {"exchange", exchange}};
}

namespace {

Placer placer(const PlanMode& mode) {
  if (!mode.places()) return {};
  const PlacementObjective objective =
      mode.objective == "total" ? PlacementObjective::total : PlacementObjective::bottleneck;
  if (mode.placement != "ilp") {
    return [objective](const TrafficMatrix& bytes, const Topology& topology) {
      return placement::place(bytes, topology, objective);
    };
  }
#ifdef ORCH_HAVE_ILP
  return [objective](const TrafficMatrix& bytes, const Topology& topology) {
    return placement::place_ilp(bytes, topology, {.objective = objective, .seconds = 60});
  };
#else
  throw InvalidInput("--placement ilp: this program was built without lp_solve; use flow or auto");
#endif
}

/// Bytes that reach a phase in the forward pass.
Traffic phase_traffic(const StepPlan& plan, std::size_t phase) {
  Traffic sum;
  for (const Route& route : plan.routes) {
    if (route.to == phase) sum += traffic(route, plan.topology);
  }
  return sum;
}

std::string name_of(const StepPlan& plan, std::uint32_t phase) {
  return phase == Route::home ? "home" : plan.phases[phase].phase;
}

Json phase_json(const StepPlan& plan, std::size_t index) {
  const PhasePlan& phase = plan.phases[index];
  const Traffic moved = phase_traffic(plan, index);
  return {{"phase", phase.phase},
          {"samples", plan.samples.size()},
          {"nonempty_samples", phase.nonempty},
          {"units", phase.length.size()},
          {"ranks", plan.ranks()},
          {"empty_ranks", phase.empty_ranks.size()},
          {"solver", phase.assignment.solver},
          {"max_cost", phase.assignment.max_cost()},
          {"mean_cost", phase.assignment.mean_cost()},
          {"lower_bound", phase.assignment.lower_bound},
          {"gap", phase.assignment.gap()},
          {"imbalance_before", phase.imbalance_before},
          {"imbalance_after", phase.assignment.imbalance()},
          {"moved_bytes", moved.moved_bytes()},
          {"inter_node_bytes", moved.inter_node_bytes},
          {"solve_ms", phase.solve_seconds * 1e3}};
}

/// Largest number of messages that any rank sends between nodes, in the stage where it sends most.
std::uint32_t most_peers(std::span<const LinkTraffic> ranks) {
  std::uint32_t most = 0;
  for (const LinkTraffic& rank : ranks) most = std::max(most, rank.peers[1]);
  return most;
}

/// One exchange both ways of scheduling it.
Json route_json(const StepPlan& plan, const Route& route, const LinkRates& rates) {
  const HierarchicalExchange stages = route.stages ? *route.stages : hierarchical(route.exchange, plan.topology);
  const std::vector<LinkTraffic> direct = link_traffic(route.exchange, plan.topology, rates);
  const auto staged = link_traffic(stages, plan.topology, rates);
  const std::vector<std::uint64_t> staging = staging_bytes(stages);
  const Traffic moved = traffic(route.exchange, plan.topology);
  const Traffic node_first = traffic(stages, plan.topology);
  const auto schedule = [&](const Traffic& t, double seconds, std::uint32_t peers, std::uint64_t buffer) {
    return Json{{"seconds", seconds},
                {"intra_node_bytes", t.intra_node_bytes},
                {"inter_node_bytes", t.inter_node_bytes},
                {"cross_rail_bytes", t.cross_rail_bytes},
                {"cross_leaf_bytes", t.cross_leaf_bytes},
                {"intra_node_messages", t.intra_node_messages},
                {"inter_node_messages", t.inter_node_messages},
                {"most_inter_node_peers", peers},
                {"most_staging_bytes", buffer}};
  };
  return {{"from", name_of(plan, route.from)},
          {"to", name_of(plan, route.to)},
          {"schedule", route.stages ? "hierarchical" : "direct"},
          {"identity", route.exchange.identity},
          {"local_bytes", moved.local_bytes},
          {"direct", schedule(moved, seconds(direct, rates), most_peers(direct), 0)},
          {"hierarchical", schedule(node_first, seconds(staged, rates), most_peers(staged[1]),
                                    *std::max_element(staging.begin(), staging.end()))}};
}

double number(const Json& json, const char* key) { return json.at(key).is_number() ? json.at(key).get<double>() : 0; }

}  // namespace

StepOptions PlanMode::step_options(const sim::Cluster& cluster, double tolerance) const {
  StepOptions options;
  options.encoders.balancer = balance == "none"   ? Balancer::home
                              : balance == "lpt"  ? Balancer::lpt
                              : balance == "auto" ? Balancer::automatic
                                                  : Balancer::movement;
  options.llm.balancer = options.encoders.balancer;
  options.encoders.granularity = granularity_names.at(granularity);
  options.placer = placer(*this);
  options.tolerance = tolerance;
  options.joint = joint;
  options.schedule = schedule_names.at(exchange);
  options.rates = cluster.exchange_rates();
  return options;
}

void PlanRun::each_step(const std::function<void(std::uint32_t, const StepPlan&)>& visit) const {
  const StepOptions step_options = mode.step_options(inputs.cluster, tolerance);
  const std::vector<std::uint32_t> home = home_ranks(options.ranks, options.batch);
  const Topology topology = uniform_topology(options.ranks, inputs.cluster.gpus_per_node);
  Sampler sampler(inputs.lengths->samples(), options.seed);
  for (std::uint32_t step = 0; step < options.steps; ++step) {
    visit(step, plan_step(inputs.model, *inputs.lengths, sampler.next(home.size()), home, topology, step_options));
  }
}

Json step_json(std::uint32_t step, const StepPlan& plan, const sim::Cluster& cluster) {
  Json json{{"step", step}, {"plan_hash", hex(plan.hash)}, {"phases", Json::array()}, {"exchanges", Json::array()}};
  for (std::size_t phase = 0; phase < plan.phases.size(); ++phase) json["phases"].push_back(phase_json(plan, phase));
  for (const Route& route : plan.routes) {
    json["exchanges"].push_back(route_json(plan, route, cluster.exchange_rates()));
  }
  return json;
}

void print_steps(const Json& steps) {
  const auto mean = [&](const char* list, std::size_t index, auto&& value) {
    double sum = 0;
    for (const Json& step : steps) sum += value(step[list][index]);
    return sum / static_cast<double>(steps.size());
  };
  std::vector<std::vector<std::string>> phases{
      {"phase", "imbalance before", "after", "gap %", "moved/step", "inter-node/step", "solve ms"}};
  for (std::size_t p = 0; p < steps[0]["phases"].size(); ++p) {
    const auto of = [&](const char* key) { return mean("phases", p, [&](const Json& j) { return number(j, key); }); };
    phases.push_back({steps[0]["phases"][p]["phase"].get<std::string>(), fmt::format("{:.3f}", of("imbalance_before")),
                      fmt::format("{:.4f}", of("imbalance_after")), fmt::format("{:.3f}", 100 * of("gap")),
                      bytes_text(of("moved_bytes")), bytes_text(of("inter_node_bytes")),
                      fmt::format("{:.2f}", of("solve_ms"))});
  }
  print_table(phases);
  std::vector<std::vector<std::string>> exchanges{
      {"exchange", "schedule", "inter-node", "direct ms", "peers", "node first ms", "peers", "staging"}};
  for (std::size_t r = 0; r < steps[0]["exchanges"].size(); ++r) {
    const Json& first = steps[0]["exchanges"][r];
    const auto of = [&](const char* schedule, const char* key) {
      return mean("exchanges", r, [&](const Json& j) { return number(j[schedule], key); });
    };
    exchanges.push_back({first["from"].get<std::string>() + " -> " + first["to"].get<std::string>(),
                         first["schedule"].get<std::string>(), bytes_text(of("direct", "inter_node_bytes")),
                         fmt::format("{:.3f}", 1e3 * of("direct", "seconds")),
                         fmt::format("{:.0f}", of("direct", "most_inter_node_peers")),
                         fmt::format("{:.3f}", 1e3 * of("hierarchical", "seconds")),
                         fmt::format("{:.0f}", of("hierarchical", "most_inter_node_peers")),
                         bytes_text(of("hierarchical", "most_staging_bytes"))});
  }
  fmt::print("\n");
  print_table(exchanges);
  fmt::print(
      "\nTimes of exchanges are estimates from the cluster file; raw inputs (from home) travel ahead of the step.\n"
      "Peers: most ranks of other nodes that one rank sends to. Staging: most bytes that one rank passes on.\n");
}

namespace {

/// Figures of one mode, means over steps.
Json mode_json(const PlanRun& run) {
  std::vector<double> imbalance(run.inputs.model.encoders.size() + 1, 0);
  double moved = 0, inter_node = 0, all = 0, outputs = 0, solve = 0;
  double direct_seconds = 0, staged_seconds = 0;
  std::uint32_t direct_peers = 0, staged_peers = 0;
  const LinkRates rates = run.inputs.cluster.exchange_rates();
  run.each_step([&](std::uint32_t, const StepPlan& plan) {
    for (std::size_t phase = 0; phase < plan.phases.size(); ++phase) {
      imbalance[phase] += plan.phases[phase].assignment.imbalance();
      solve += plan.phases[phase].solve_seconds;
    }
    for (const Route& route : plan.routes) {
      const Traffic bytes = traffic(route, plan.topology);
      moved += static_cast<double>(bytes.moved_bytes());
      inter_node += static_cast<double>(bytes.inter_node_bytes);
      all += static_cast<double>(bytes.local_bytes + bytes.moved_bytes());
      if (route.is_input()) continue;
      outputs += static_cast<double>(bytes.inter_node_bytes);
      const std::vector<LinkTraffic> direct = link_traffic(route.exchange, plan.topology, rates);
      const auto staged = link_traffic(hierarchical(route.exchange, plan.topology), plan.topology, rates);
      direct_seconds += seconds(direct, rates);
      staged_seconds += seconds(staged, rates);
      direct_peers = std::max(direct_peers, most_peers(direct));
      staged_peers = std::max(staged_peers, most_peers(staged[1]));
    }
  });
  const double steps = run.options.steps;
  Json phases = Json::object();
  for (std::size_t phase = 0; phase < imbalance.size(); ++phase) {
    const bool llm = phase + 1 == imbalance.size();
    phases[llm ? "llm" : run.inputs.model.encoders[phase].phase] = imbalance[phase] / steps;
  }
  const bool none = run.mode.balance == "none";
  return {{"balance", run.mode.balance},
          {"granularity", none ? "-" : run.mode.granularity},
          {"placement", run.mode.places() ? run.mode.placement + ", " + run.mode.objective : "-"},
          {"llm_layout", none             ? "-"
                         : run.mode.joint ? "joint"
                                          : "independent"},
          {"imbalance", std::move(phases)},
          {"moved_bytes", moved / steps},
          {"inter_node_bytes", inter_node / steps},
          {"inter_node_part", all > 0 ? inter_node / all : 0.0},
          {"outputs_inter_node_bytes", outputs / steps},
          {"direct_seconds", direct_seconds / steps},
          {"direct_most_peers", direct_peers},
          {"hierarchical_seconds", staged_seconds / steps},
          {"hierarchical_most_peers", staged_peers},
          {"solve_ms", 1e3 * solve / steps}};
}

std::vector<PlanMode> all_modes() {
  std::vector<PlanMode> modes;
  for (const char* granularity : {"sample", "unit"}) {
    const auto add = [&](const char* balance, const char* placement, const char* objective, bool joint = true) {
      modes.push_back({.balance = balance,
                       .granularity = granularity,
                       .placement = placement,
                       .objective = objective,
                       .exchange = "direct",
                       .joint = joint});
    };
    if (modes.empty()) add("none", "none", "total");
    add("lpt", "none", "total");
    add("lpt", "flow", "total");
    add("lpt", "flow", "bottleneck");
    add("auto", "flow", "total");
    add("movement", "none", "total", false);
    add("movement", "none", "total");
  }
  return modes;
}

}  // namespace

Json compare_modes(const PlanRun& run) {
  const auto progress = progress_line("mode");
  const std::vector<PlanMode> modes = all_modes();
  Json rows = Json::array();
  for (const PlanMode& mode : modes) {
    rows.push_back(mode_json({run.inputs, run.options, mode, run.tolerance}));
    if (progress) progress(static_cast<std::uint32_t>(rows.size()), static_cast<std::uint32_t>(modes.size()));
  }
  return rows;
}

void print_modes(const Json& modes) {
  std::vector<std::vector<std::string>> table{{"balance", "units", "placement", "LLM layout"}};
  for (const auto& phase : modes[0]["imbalance"].items()) table[0].push_back(phase.key() + " imb.");
  for (const char* name : {"moved/step", "inter-node/step", "of all %", "outputs inter-node", "direct ms", "peers",
                           "node first ms", "peers", "solve ms"}) {
    table[0].emplace_back(name);
  }
  for (const Json& mode : modes) {
    std::vector<std::string> row{mode["balance"], mode["granularity"], mode["placement"], mode["llm_layout"]};
    for (const auto& phase : mode["imbalance"].items())
      row.push_back(fmt::format("{:.4f}", phase.value().get<double>()));
    const auto number = [&](const char* key) { return mode[key].get<double>(); };
    row.push_back(bytes_text(number("moved_bytes")));
    row.push_back(bytes_text(number("inter_node_bytes")));
    row.push_back(fmt::format("{:.2f}", 100 * number("inter_node_part")));
    row.push_back(bytes_text(number("outputs_inter_node_bytes")));
    row.push_back(fmt::format("{:.3f}", 1e3 * number("direct_seconds")));
    row.push_back(fmt::format("{:.0f}", number("direct_most_peers")));
    row.push_back(fmt::format("{:.3f}", 1e3 * number("hierarchical_seconds")));
    row.push_back(fmt::format("{:.0f}", number("hierarchical_most_peers")));
    row.push_back(fmt::format("{:.1f}", number("solve_ms")));
    table.push_back(row);
  }
  print_table(table);
  fmt::print(
      "\nBytes of the forward pass. Milliseconds: estimated for the encoder outputs, every pair of ranks directly or "
      "node "
      "first;\npeers: most ranks of other nodes that one rank then sends to. Independent: the LLM's layout is chosen "
      "as "
      "if outputs were at home.\n");
}

}  // namespace orch::apps
