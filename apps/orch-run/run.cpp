#include "run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "fault.hpp"
#include "mode_names.hpp"
#include "orchmllm/base/hash.hpp"
#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/orchestrate/prefetch.hpp"
#include "orchmllm/orchestrate/sampler.hpp"
#include "orchmllm/runtime/activity.hpp"
#include "orchmllm/runtime/agreement.hpp"
#include "orchmllm/runtime/compute.hpp"
#include "orchmllm/sim/exchange_time.hpp"
#include "orchmllm/sim/kernels.hpp"
#include "orchmllm/sim/strategy.hpp"
#include "orchmllm/version.hpp"

namespace orch::apps {

namespace {

using runtime::Direction;
using runtime::Stopwatch;

/// As the other programs read them, but only rank 0 warns.
RunInputs read_rank_inputs(const ExecuteOptions& options, std::uint32_t rank) {
  InputStore store(rank == 0);
  RunInputs inputs{store.model(options.model), store.cluster(options.cluster), {}, {}};
  const InputStore::Trace& trace = store.trace(options.trace, options.model, 0);
  inputs.trace = trace.info;
  inputs.lengths = trace.lengths;
  return inputs;
}

/// Of everything that a plan and its execution take from a model.
std::uint64_t fingerprint(const Mllm& model, const PhaseLengths& lengths) {
  Fingerprint print;
  const auto add_transformer = [&](const Transformer& t) {
    print.add(parameters(t)).add(linear_flops_per_token(t)).add(attention_flops_per_pair(t)).add(t.hidden);
  };
  for (const Encoder& encoder : model.encoders) {
    print.add_bytes(encoder.phase);
    add_transformer(encoder.transformer);
    print.add(front_end_flops_per_token(encoder)).add(connector_flops_per_token(encoder.connector));
    print.add(input_bytes_per_token(encoder)).add(output_bytes_per_token(model, encoder));
    print.add(attention_span(encoder.rule)).add(encoder.feeds.size());
    for (const std::string& phase : encoder.feeds) print.add_bytes(phase);
  }
  add_transformer(model.llm);
  const auto add_all = [&](const std::vector<std::uint32_t>& words) {
    print.add_all(std::span<const std::uint32_t>(words));
  };
  for (const EncoderLengths& encoder : lengths.encoders) {
    for (const auto* column : {&encoder.unit_length, &encoder.unit_llm_length, &encoder.unit_position})
      add_all(*column);
  }
  for (const auto* column : {&lengths.text, &lengths.supervised, &lengths.llm_length}) add_all(*column);
  return print.value();
}

/// Names and values.
using Settings = std::vector<std::pair<std::string, std::string>>;

/// What must be the same on all ranks, the likeliest reason first.
Settings settings(const ExecuteOptions& options, const RunInputs& inputs) {
  Settings result{
      {"version", ORCHMLLM_VERSION},
      {"--trace", fmt::format("{} ({})", inputs.trace.name, hex(inputs.trace.hash))},
      {"--model", fmt::format("{} ({})", inputs.model.name, hex(fingerprint(inputs.model, *inputs.lengths)))},
      {"--cluster", inputs.cluster.name},
      {"--batch", fmt::format("{}", options.batch)},
      {"--steps", fmt::format("{}", options.steps)},
      {"--seed", fmt::format("{}", options.seed)},
      {"--strategy", fmt::format("{}", fmt::join(options.strategies, ","))},
      {"--exchange", options.exchange},
      {"--verify", options.verify},
      {"--compute-scale", fmt::format("{}", options.compute_scale)},
      {"--ranks-per-node", fmt::format("{}", options.ranks_per_node)}};
  for (const auto& [key, value] : sim::cluster_settings(options.cluster)) result.emplace_back("cluster " + key, value);
  return result;
}

/// Throws an AgreedError that names the first setting which differs, and the ranks.
void compare_settings(Backend& transport, const Settings& mine) {
  const std::string text = Json(mine).dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::string hash = hex(Fingerprint().add_bytes(text).value());
  const std::vector<std::string> hashes = transport.all_gather("comparing settings", hash);
  if (std::count(hashes.begin(), hashes.end(), hash) == std::ssize(hashes)) return;
  std::vector<std::string> names;  // as the first rank that has them lists them
  std::map<std::string, std::vector<std::string>> values;
  const std::vector<std::string> said = transport.all_gather("naming settings", text);
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    for (const auto& [name, value] : Json::parse(said[rank]).get<Settings>()) {
      const auto [at, is_new] = values.try_emplace(name, said.size(), "unset");
      if (is_new) names.push_back(name);
      at->second[rank] = value;
    }
  }
  for (const std::string& name : names) runtime::require_equal(name, values[name]);
}

StepOptions step_options(const ExecuteOptions& options, const std::string& strategy, const RunInputs& inputs) {
  StepOptions result = sim::strategy(strategy).options;
  result.rates = inputs.cluster.exchange_rates();
  result.schedule = schedule_names.at(options.exchange);
  return result;
}

runtime::Verify verify_mode(const std::string& name) {
  if (name == "off") return runtime::Verify::off;
  return name == "sample" ? runtime::Verify::sample : runtime::Verify::full;
}

struct PlannedStep {
  StepPlan plan;
  RankView view;
  PlanFigures figures;
  std::vector<runtime::PhaseFlops> flops;  ///< phase → of this rank
  double seconds = 0;
};

/// Seconds of a load on the cluster file's device: the simulator's time of the very products and attention that are
/// run.
double predicted_seconds(const runtime::PhaseFlops& flops, const LoadShape& shape, const sim::Gpu& gpu) {
  const double block = sim::gemm_seconds(shape.rows, shape.width, shape.width, sim::Precision::bf16, gpu);
  const sim::AttentionRate& attention = sim::attention_rate(gpu, shape.head_dim, /*causal=*/false);
  return 3 * flops.products / (2 * shape.rows * shape.width * shape.width) * block +
         flops.attention *
             (1 / attention.forward_flops.at(shape.length) + 2.5 / attention.backward_flops.at(shape.length)) /
             gpu.attention_scale;
}

/// What the simulator says of a step.
void predict(PlanFigures& figures, const StepPlan& plan, const ExecuteOptions& options, const RunInputs& inputs,
             const LoadShape& shape) {
  const std::vector<sim::ExchangeTime> times =
      sim::exchange_times(plan, inputs.cluster, network_names.at(options.network));
  for (std::size_t r = 0; r < plan.routes.size(); ++r) {
    const Route& route = plan.routes[r];
    const Traffic bytes = traffic(route, plan.topology);
    ExchangeFigures there{route.is_input() ? "home" : plan.phases[route.from].phase,
                          plan.phases[route.to].phase,
                          r,
                          Direction::forward,
                          route.stages.has_value(),
                          bytes.moved_bytes(),
                          bytes.inter_node_bytes,
                          times[r].forward};
    figures.exchanges.push_back(there);
    if (route.is_input()) continue;
    std::swap(there.from, there.to);
    there.direction = Direction::backward;
    there.predicted_seconds = times[r].backward;
    figures.exchanges.push_back(there);
  }
  for (std::uint32_t rank = 0; rank < plan.ranks(); ++rank) {
    std::vector<double>& seconds = figures.predicted_compute.emplace_back();
    for (const runtime::PhaseFlops& flops : runtime::phase_flops(inputs.model, plan, rank)) {
      seconds.push_back(options.compute_scale * predicted_seconds(flops, shape, inputs.cluster.gpu));
    }
  }
}

PlanFigures figures(const StepPlan& plan) {
  PlanFigures result;
  result.hash = plan.hash;
  for (const PhasePlan& phase : plan.phases) {
    result.imbalance_before.push_back(phase.imbalance_before);
    result.imbalance.push_back(phase.assignment.imbalance());
  }
  return result;
}

/// Numbers of a rank's steps as text, for the other ranks: in the order that read_report() takes them.
template <class Visit>
void visit_numbers(RankStep& step, Visit&& visit) {
  runtime::StepReport& report = step.report;
  for (double* seconds : {&step.plan_seconds, &step.plan_wait_seconds, &report.exchange.pack_seconds,
                          &report.exchange.exchange_seconds, &report.verify_seconds, &report.seconds}) {
    visit(*seconds);
  }
  for (auto* by_phase : {&report.compute_seconds, &report.wait_seconds}) {
    for (double& seconds : *by_phase) visit(seconds);
  }
  for (auto& both_ways : report.route_seconds) {
    for (double& seconds : both_ways) visit(seconds);
  }
  for (std::uint64_t* count : {&report.exchange.sent_bytes, &report.exchange.received_bytes, &report.exchange.messages,
                               &report.verified_bytes, &report.mismatches}) {
    visit(*count);
  }
}

/// All ranks' steps, on all ranks.
std::vector<std::vector<RankStep>> gather_reports(Backend& transport, std::vector<RankStep> mine, std::size_t phases,
                                                  std::size_t routes) {
  Json json = Json::array();
  for (RankStep& step : mine) {
    Json numbers = Json::array();
    visit_numbers(step, [&](auto& number) { numbers.push_back(number); });
    json.push_back({{"numbers", std::move(numbers)}, {"examples", step.report.examples}});
  }
  std::vector<std::vector<RankStep>> all;
  for (const std::string& text : transport.all_gather("collecting reports", json.dump())) {
    std::vector<RankStep>& steps = all.emplace_back();
    for (const Json& said : Json::parse(text)) {
      RankStep& step = steps.emplace_back();
      step.report.compute_seconds.resize(phases);
      step.report.wait_seconds.resize(phases);
      step.report.route_seconds.resize(routes);
      std::size_t next = 0;
      visit_numbers(step, [&](auto& number) { said["numbers"][next++].get_to(number); });
      said["examples"].get_to(step.report.examples);
    }
  }
  return all;
}

/// All steps of one strategy.
Run execute(Backend& transport, const ExecuteOptions& options, const std::string& strategy, const RunInputs& inputs,
            const Topology& topology, const Fault& fault) {
  const std::uint32_t rank = transport.rank();
  Run run{strategy, inputs, topology, {}, {}, {}, {}};
  for (const Encoder& encoder : inputs.model.encoders) run.phases.push_back(encoder.phase);
  run.phases.emplace_back(llm_phase);

  const StepOptions plan_options = step_options(options, strategy, inputs);
  const std::vector<std::uint32_t> home = home_ranks(transport.ranks(), options.batch);
  const LoadShape shape = transport.load_shape();
  Sampler sampler(inputs.lengths->samples(), options.seed);
  const auto plan = [&](std::uint64_t step) {
    fault.strike("planning", rank, step);
    Stopwatch watch;
    PlannedStep planned;
    planned.plan = plan_step(inputs.model, *inputs.lengths, sampler.next(home.size()), home, topology, plan_options);
    planned.view = rank_view(planned.plan, rank);
    planned.flops = runtime::phase_flops(inputs.model, planned.plan, rank);
    watch.add_to(planned.seconds);
    planned.figures = figures(planned.plan);
    if (rank == 0) predict(planned.figures, planned.plan, options, inputs, shape);
    return planned;
  };

  PlannedStep current;
  std::uint64_t step = 0;
  FaultyTransport<Backend> faulty(transport, fault);
  runtime::ExecutorOptions executor_options{.verify = verify_mode(options.verify), .seed = options.seed};
  executor_options.begin = [](const std::string& what) { runtime::set_activity(what); };
  executor_options.compute = [&](std::size_t phase, Direction direction) {
    fault.strike("compute", rank, step);
    transport.compute(current.flops[phase], options.compute_scale, direction == Direction::backward);
  };
  const Backend::Steps run_step = transport.steps(faulty, std::move(executor_options));
  std::vector<RankStep> mine;
  const sim::Progress progress = rank == 0 ? progress_line("running " + strategy) : sim::Progress{};
  Prefetcher<PlannedStep> plans(plan, options.steps);
  for (; step < options.steps; ++step) {
    RankStep& done = mine.emplace_back();
    const std::string what = fmt::format("step {}, planning", step);
    runtime::set_activity(what);
    Stopwatch watch;
    runtime::require_equal(fmt::format("the plan of step {}", step), runtime::agree(transport, what, [&] {
                             current = std::move(plans.next().value());
                             return hex(current.plan.hash);
                           }));
    watch.add_to(done.plan_wait_seconds);
    done.plan_seconds = current.seconds;
    run.plans.push_back(std::move(current.figures));
    faulty.begin_step(step);
    done.report = run_step(step, current.plan, current.view);
    if (progress) progress(static_cast<std::uint32_t>(step + 1), options.steps);
  }
  run.ranks = gather_reports(transport, std::move(mine), run.phases.size(), current.plan.routes.size());
  for (const std::string& text : transport.all_gather("collecting devices", transport.device().dump())) {
    if (Json device = Json::parse(text); !device.is_null()) run.devices.push_back(std::move(device));
  }
  return run;
}

}  // namespace

Topology find_topology(const std::vector<std::string>& hosts, std::uint32_t ranks_per_node) {
  if (ranks_per_node > 0) return uniform_topology(static_cast<std::uint32_t>(hosts.size()), ranks_per_node);
  std::vector<std::uint32_t> sizes;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (rank == 0 || hosts[rank] != hosts[rank - 1]) {
      for (std::size_t before = 0; before < rank; ++before) {
        if (hosts[before] != hosts[rank]) continue;
        throw runtime::AgreedError(fmt::format("ranks {} and {} are on host {}, those between them are not: launch "
                                               "ranks host by host (mpirun --map-by slot, srun --distribution=block), "
                                               "or state --ranks-per-node",
                                               before, rank, hosts[rank]),
                                   2);
      }
      sizes.push_back(0);
    }
    ++sizes.back();
  }
  return topology(sizes);
}

std::vector<Run> execute(Backend& transport, const ExecuteOptions& options) {
  RunInputs inputs;
  Settings mine;
  Fault fault;
  runtime::set_activity("reading inputs");
  static_cast<void>(runtime::agree(transport, "reading inputs", [&] {
    fault = Fault::from_environment();
    inputs = read_rank_inputs(options, transport.rank());
    mine = settings(options, inputs);
    return std::string();
  }));
  compare_settings(transport, mine);
  const Topology topology =
      find_topology(transport.all_gather("comparing hosts", transport.host()), options.ranks_per_node);
  std::vector<Run> runs;
  for (const std::string& strategy : options.strategies) {
    runs.push_back(execute(transport, options, strategy, inputs, topology, fault));
  }
  return runs;
}

}  // namespace orch::apps
