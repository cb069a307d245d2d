// The simulator: events a second of the engine alone and of whole steps with planning, over GPUs and steps.
//
// An event is one task's completion. `engine`: the graph of an FSDP step (two passes a unit, collectives of a shard
// group as one task each), built beforehand. `simulate`: sampling, planning, work, building, playing and measuring of
// mllm-84b's steps under the published method, with shard groups of 256. Counters: events a second, peak MiB resident.
//
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/io/trace.hpp"
#include "orchmllm/sim/engine.hpp"
#include "orchmllm/sim/model_file.hpp"
#include "orchmllm/sim/simulate.hpp"

namespace {

using namespace orch;
using namespace orch::sim;

double resident_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// `units` layers on `lanes` ranks: gathers, passes of unequal length, reductions.
TaskGraph fsdp_graph(std::uint32_t lanes, std::uint32_t units) {
  TaskGraph graph;
  std::vector<ResourceId> compute, links;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    compute.push_back(graph.add_resource(Order::program));
    links.push_back(graph.add_resource());
  }
  const ResourceId group = graph.add_group(links);
  std::vector<TaskId> last(lanes), before(lanes);
  for (std::uint32_t pass = 0; pass < 2 * units; ++pass) {
    const TaskId gather = graph.add_task(group, 500);
    if (pass >= 2) {
      for (const TaskId task : before) graph.add_dependency(task, gather);
    }
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      const TaskId task = graph.add_task(compute[lane], 1000 + (lane * 7919 + pass * 104729) % 200);
      graph.add_dependency(gather, task);
      before[lane] = std::exchange(last[lane], task);
    }
    if (pass < units) continue;
    const TaskId reduce = graph.add_task(group, 800);
    for (const TaskId task : last) graph.add_dependency(task, reduce);
  }
  return graph;
}

void engine(benchmark::State& state) {
  const TaskGraph graph = fsdp_graph(static_cast<std::uint32_t>(state.range(0)), 192);
  std::uint64_t events = 0;
  for (auto _ : state) events += graph.run().events;
  state.counters["events_per_second"] = benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}
BENCHMARK(engine)->ArgName("gpus")->Arg(256)->Arg(2560)->Arg(16384)->Unit(benchmark::kMillisecond);

struct Inputs {
  const std::string root = ORCHMLLM_SOURCE_DIR;
  Mllm model = load_model(root + "/sim/models/mllm-84b.toml");
  Cluster cluster = load_cluster(root + "/sim/clusters/h100-8x400g.toml");
  PhaseLengths lengths;
  Inputs() {
    (void)io::read_trace(root + "/traces/omni-demo.jsonl.gz",
                         [&](const Sample& sample) { append(lengths, model, sample); });
  }
};

void simulated_steps(benchmark::State& state, const char* name) {
  static const Inputs inputs;
  Configuration configuration{.gpus = static_cast<std::uint32_t>(state.range(0)),
                              .batch = 8,
                              .steps = static_cast<std::uint32_t>(state.range(1)),
                              .seed = 1};
  configuration.parallelism.shard = 256;
  std::uint64_t events = 0;
  for (auto _ : state) {
    events += simulate(inputs.model, inputs.lengths, inputs.cluster, configuration, strategy(name)).events;
  }
  state.counters["events_per_second"] = benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
  state.counters["peak_mib"] = resident_mib();
}
void none(benchmark::State& state) { simulated_steps(state, "none"); }  // nothing is balanced: no solver's time
void orchmllm(benchmark::State& state) { simulated_steps(state, "orchmllm"); }
void movement(benchmark::State& state) { simulated_steps(state, "movement"); }

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"gpus", "steps"})->Unit(benchmark::kMillisecond);
  for (const std::int64_t steps : {1, 10, 100}) bench->Args({2560, steps});
  for (const std::int64_t gpus : {256, 16384, 65536}) bench->Args({gpus, 1});
}
BENCHMARK(none)->Apply(sizes);
BENCHMARK(orchmllm)->Apply(sizes);
BENCHMARK(movement)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
