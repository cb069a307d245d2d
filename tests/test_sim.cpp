#include <algorithm>
#include <numeric>

#include "clusters.hpp"
#include "instances.hpp"
#include "models.hpp"
#include "orchmllm/sim/collectives.hpp"
#include "orchmllm/sim/engine.hpp"
#include "orchmllm/sim/kernels.hpp"
#include "orchmllm/sim/memory.hpp"
#include "orchmllm/sim/model_file.hpp"
#include "orchmllm/sim/simulate.hpp"
#include "orchmllm/sim/step_work.hpp"
#include "property.hpp"

using namespace orch;
using namespace orch::sim;

namespace {

/// The cluster of the worked example in docs/simulator.md: round numbers, nodes of two GPUs.
Cluster round_cluster() {
  Cluster c = test::plain_cluster(0.25e12);
  c.name = "round";
  c.gpus_per_node = 2;
  c.gpu.memory_bandwidth = 1e12;
  c.gpu.gemm_sustained = 0.5;
  c.links.nvlink_bandwidth = 100e9;
  c.links.nic_bandwidth = 10e9;
  c.links.exchange_base_seconds = 10e-6;
  c.links.exchange_peer_seconds = 1e-6;
  return c;
}

/// The worked example's model: the plain model without its audio encoder.
Mllm round_model() {
  Mllm model = test::plain_model();
  model.encoders.pop_back();
  return model;
}

/// Eight samples of 1,000 LLM tokens, two a rank; the first four have an image of 2,000 patches.
PhaseLengths round_lengths() {
  std::vector<Sample> samples(4, test::counted(500, {{2000, 500}}));
  samples.resize(8, test::counted(1000));
  return test::lengths_of(round_model(), samples);
}

PlayedStep play_round(const StepOptions& options) {
  const Mllm model = round_model();
  const PhaseLengths lengths = round_lengths();
  const Cluster cluster = round_cluster();
  std::vector<std::uint32_t> samples(8);
  std::iota(samples.begin(), samples.end(), 0U);
  const StepPlan plan = plan_step(model, lengths, samples, home_ranks(4, 2), uniform_topology(4, 2), options);
  const std::vector<PhaseShape> shapes = phase_shapes(model);
  const Parallelism parallelism;
  const StepWork work = step_work({model, shapes, cluster, parallelism}, plan, 4);
  return play_step(shapes, work, {plan.routes, plan.topology}, cluster, parallelism);
}

StepOptions balancers(Balancer encoders, Balancer llm) {
  return {.encoders = {.balancer = encoders}, .llm = {.balancer = llm}};
}

/// Work of one rank that holds these samples of the worked example alone.
std::vector<PhaseWork> work_of(const std::vector<std::uint32_t>& samples) {
  const Mllm model = round_model();
  const StepPlan plan =
      plan_step(model, round_lengths(), samples, std::vector<std::uint32_t>(samples.size(), 0), uniform_topology(1, 1));
  const Cluster cluster = round_cluster();
  const std::vector<PhaseShape> shapes = phase_shapes(model);
  const Parallelism parallelism;
  std::vector<PhaseWork> work;
  for (const auto& phase : step_work({model, shapes, cluster, parallelism}, plan, 1).work) work.push_back(phase[0][0]);
  return work;
}

double milliseconds(double seconds) { return seconds * 1e3; }

}  // namespace

TEST_CASE("engine: a chain adds up, a shared resource queues in order of readiness, a barrier waits for all") {
  TaskGraph graph;
  const ResourceId a = graph.add_resource();
  const ResourceId b = graph.add_resource();
  const TaskId first = graph.add_task(a, 5);
  const TaskId second = graph.add_task(a, 7);
  const TaskId third = graph.add_task(b, 3);
  graph.add_dependency(first, third);
  const TaskId barrier = graph.add_task(no_resource, 0);
  graph.add_dependency(second, barrier);
  graph.add_dependency(third, barrier);
  const TaskId last = graph.add_task(b, 1);
  graph.add_dependency(barrier, last);
  const Schedule s = graph.run();
  CHECK(s.finish[first] == 5);
  CHECK(s.start[second] == 5);
  CHECK(s.finish[third] == 8);
  CHECK(s.finish[barrier] == 12);
  CHECK(s.makespan == 13);
  CHECK(s.busy[a] == 12);
  CHECK(s.busy[b] == 4);
  CHECK(s.events == 5);
}

TEST_CASE("engine: a cycle is refused") {
  TaskGraph graph;
  const TaskId a = graph.add_task(no_resource, 1);
  const TaskId b = graph.add_task(no_resource, 1);
  graph.add_dependency(a, b);
  graph.add_dependency(b, a);
  CHECK_THROWS_AS((void)graph.run(), InvalidInput);
  CHECK_THROWS_AS((void)to_nanoseconds(-1), InvalidInput);
  CHECK(to_nanoseconds(1.5e-6) == 1500);
}

TEST_CASE(
    "engine: dependencies hold, resources are exclusive, busy time is conserved, the end is a longest path at least") {
  test::check_property("engine invariants", [] {
    const auto n = *rc::gen::inRange<std::uint32_t>(1, 60);
    const auto resources = *rc::gen::inRange<std::uint32_t>(1, 5);
    TaskGraph graph;
    for (std::uint32_t r = 0; r < resources; ++r) (void)graph.add_resource();
    std::vector<std::pair<TaskId, TaskId>> edges;
    std::vector<Nanoseconds> longest(n, 0);
    for (TaskId task = 0; task < n; ++task) {
      const auto resource = *rc::gen::inRange<std::uint32_t>(0, resources + 1);
      const auto duration = *rc::gen::inRange<Nanoseconds>(0, 50);
      (void)graph.add_task(resource == resources ? no_resource : resource, duration);
      Nanoseconds before_end = 0;
      if (task > 0) {
        for (int k = *rc::gen::inRange(0, 3); k > 0; --k) {
          const auto before = *rc::gen::inRange<TaskId>(0, task);
          graph.add_dependency(before, task);
          edges.emplace_back(before, task);
          before_end = std::max(before_end, longest[before]);
        }
      }
      longest[task] = before_end + duration;
    }
    const Schedule s = graph.run();
    for (const auto& [before, after] : edges) RC_ASSERT(s.finish[before] <= s.start[after]);
    std::vector<Nanoseconds> busy(resources, 0);
    for (TaskId a = 0; a < n; ++a) {
      RC_ASSERT(s.finish[a] - s.start[a] == graph.duration(a));
      if (graph.resource(a) == no_resource) continue;
      busy[graph.resource(a)] += graph.duration(a);
      for (TaskId b = a + 1; b < n; ++b) {
        if (graph.resource(a) != graph.resource(b)) continue;
        RC_ASSERT(s.finish[a] <= s.start[b] || s.finish[b] <= s.start[a] || graph.duration(a) == 0U ||
                  graph.duration(b) == 0U);
      }
    }
    RC_ASSERT(busy == s.busy);
    RC_ASSERT(s.makespan >= *std::max_element(longest.begin(), longest.end()));
    RC_ASSERT(s.makespan >= *std::max_element(busy.begin(), busy.end()));
  });
}

TEST_CASE("engine: program order holds without dependencies, a group waits for all of its members") {
  TaskGraph graph;
  const ResourceId stream = graph.add_resource(Order::program);
  const ResourceId a = graph.add_resource();
  const ResourceId b = graph.add_resource();
  const ResourceId both = graph.add_group({a, b});
  const TaskId late = graph.add_task(no_resource, 9);
  const TaskId first = graph.add_task(stream, 2);
  const TaskId second = graph.add_task(stream, 3);  // ready at once, but behind the first
  graph.add_dependency(late, first);
  const TaskId alone = graph.add_task(a, 5);
  const TaskId together = graph.add_task(both, 4);
  const TaskId behind = graph.add_task(b, 1);
  const Schedule s = graph.run();
  CHECK(s.start[first] == 9);
  CHECK(s.start[second] == 11);
  CHECK(s.start[alone] == 0);
  CHECK(s.start[together] == 5);
  CHECK(s.start[behind] == 9);  // first come, first served: the collective has kept b's place
  CHECK(s.busy[a] == 9);
  CHECK(s.busy[b] == 5);
  CHECK(s.busy[stream] == 5);
  CHECK(std::vector<ResourceId>(graph.resources(together).begin(), graph.resources(together).end()) ==
        std::vector<ResourceId>{a, b});
}

TEST_CASE("collectives equal their closed forms") {
  Links l = round_cluster().links;
  l.collective_base_seconds = 1e-6;
  l.network_hop_seconds = 3e-6;
  l.nvlink_hop_seconds = 2e-6;
  CHECK(ring_seconds(1e9, {1, 1}, l) == 0);
  CHECK(ring_seconds(1e9, {2, 2}, l) == doctest::Approx(1e-6 + 2e-6 + 0.5 * 1e9 / 100e9));
  CHECK(ring_seconds(1e9, {4, 2}, l) == doctest::Approx(1e-6 + 3e-6 + 2 * 2e-6 + 0.75 * 1e9 / 20e9));
  CHECK(ring_seconds(1e9, {4, 1}, l) == doctest::Approx(1e-6 + 3 * 3e-6 + 0.75 * 1e9 / 10e9));
  // Ring inside a node; in its switches where they can add up.
  CHECK(all_reduce_seconds(1e9, {2, 2}, l) == doctest::Approx(1e-6 + 2 * 2e-6 + 2 * 0.5 * 1e9 / 100e9));
  l.nvlink_all_reduce_bandwidth = 200e9;
  CHECK(all_reduce_seconds(1e9, {2, 2}, l) == doctest::Approx(1e-6 + 2 * 2e-6 + 2 * 0.5 * 1e9 / 200e9));
  // Between nodes: ring for few, tree for many.
  CHECK(all_reduce_seconds(1e9, {2, 1}, l) == doctest::Approx(1e-6 + 2 * 3e-6 + 2 * 0.5 * 1e9 / 10e9));
  CHECK(all_reduce_seconds(1e9, {64, 1}, l) == doctest::Approx(1e-6 + 2 * 6 * 3e-6 + 2 * 1e9 * 63 / 64 / 10e9));
  // Every member sends a quarter to each: one inside the node, two to the other.
  CHECK(all_to_all_seconds(1e9, {4, 2}, l) == doctest::Approx(10e-6 + 3e-6 + 0.5 * 1e9 / 10e9));
  l.nic_size_share = {{1e6, 1e9}, {0.5, 1}};
  CHECK(send_seconds(1e6, Link::inter_node, l) == doctest::Approx(10e-6 + 1e6 / 5e9));
}

TEST_CASE("collectives of GPUs that share NICs") {
  Links l = round_cluster().links;  // NVLink 100 GB/s, NIC 10 GB/s
  const Group group{8, 4};          // two nodes of four
  for (const auto& [nics, together] : {std::pair(0U, 40e9), {1U, 10e9}, {2U, 20e9}, {3U, 30e9}, {4U, 40e9}}) {
    l.nics_per_node = nics;
    CAPTURE(l.nics_per_node);
    CHECK(ring_bandwidth(group, 1e6, l) == together);
    CHECK(ring_bandwidth({2, 1}, 1e6, l) == 10e9);   // one GPU of each node: it cannot use another one's NIC
    CHECK(ring_bandwidth({4, 4}, 1e6, l) == 100e9);  // inside a node there is no NIC
    CHECK(ring_seconds(8e9, group, l) == doctest::Approx(7e9 / together));
    // 0.1 GB to each: four GPUs of a node send four each to the other node, through what NICs they have.
    CHECK(all_to_all_seconds(0.8e9, group, l) == doctest::Approx(10e-6 + 7e-6 + 16 * 0.1e9 / together));
    CHECK(all_to_all_seconds(0.8e9, {4, 4}, l) == doctest::Approx(10e-6 + 3e-6 + 3 * 0.2e9 / 100e9));
  }
  l.nic_bandwidth = 90e9;  // NVLink sets the pace where the NICs together are faster
  l.nics_per_node = 1;
  CHECK(ring_bandwidth(group, 1e6, l) == 90e9);
  l.nics_per_node = 2;
  CHECK(ring_bandwidth(group, 1e6, l) == 100e9);
  l.nic_bandwidth = 1000e9;
  CHECK(all_to_all_seconds(0.8e9, group, l) == doctest::Approx(10e-6 + 7e-6 + 3 * 0.1e9 / 100e9));
}

TEST_CASE("a uniform all-to-all takes what the endpoint model says of its exchange, however many NICs a node has") {
  test::check_property("uniform all-to-all", [] {
    const auto per_node = *rc::gen::inRange<std::uint32_t>(1, 7);
    const auto nodes = *rc::gen::inRange<std::uint32_t>(1, 5);
    const std::uint32_t ranks = per_node * nodes;
    Cluster c = round_cluster();
    c.gpus_per_node = per_node;
    c.links.nic_bandwidth = *rc::gen::element(1e9, 10e9, 1000e9);
    c.links.exchange_peer_seconds = 0;  // links count peers apart
    do {                                // GPUs in equal parts, or a NIC for each
      c.links.nics_per_node = *rc::gen::inRange<std::uint32_t>(0, per_node + 1);
    } while (c.links.nics_per_node > 0 && per_node % c.links.nics_per_node != 0);
    const auto bytes = *rc::gen::inRange<std::uint32_t>(1, 1'000'000);
    const std::vector<std::uint32_t> lengths(std::size_t{ranks} * ranks, bytes);
    std::vector<std::uint32_t> before, after;
    for (std::uint32_t i = 0; i < ranks * ranks; ++i) {
      before.push_back(i / ranks);
      after.push_back(i % ranks);
    }
    const ExchangePlan plan =
        exchange_plan(rearrangement(layout(before, ranks), layout(after, ranks)), {{{"x", 1, 1}, lengths}});
    const LinkRates rates = c.exchange_rates();
    const double expected = seconds(link_traffic(plan, c.topology(ranks), rates), rates);
    const double alone = all_to_all_seconds(static_cast<double>(bytes) * ranks, {ranks, per_node}, c.links);
    RC_ASSERT(std::abs(alone - expected) <= 1e-12 * expected);
    // A shared NIC is as good to a ring as one of its own with a part of the bandwidth.
    Links own = c.links;
    own.nics_per_node = 0;
    if (c.links.nics_per_node > 0) own.nic_bandwidth *= static_cast<double>(c.links.nics_per_node) / per_node;
    const double ring = ring_bandwidth({ranks, per_node}, 1, c.links);
    RC_ASSERT(std::abs(ring_bandwidth({ranks, per_node}, 1, own) - ring) <= 1e-12 * ring);
  });
}

TEST_CASE("products: rate of large ones, tiles and waves, short depth, memory") {
  Gpu gpu;
  gpu.peak_flops = 1e12;
  gpu.peak_flops_fp8 = 2e12;
  gpu.memory_bandwidth = 1e12;
  gpu.gemm_sustained = 0.5;
  gpu.gemm_sustained_fp8 = 0.4;
  const auto seconds = [&](double m, double n, double k, Precision p = Precision::bf16) {
    return gemm_seconds(m, n, k, p, gpu);
  };
  CHECK(seconds(1000, 1000, 1000) == doctest::Approx(2e9 / 0.5e12));
  CHECK(seconds(1000, 1000, 1000, Precision::fp8) == doctest::Approx(2e9 / 0.8e12));
  CHECK(seconds(0, 1000, 1000) == 0);
  CHECK(seconds(1, 1000, 1000) == doctest::Approx(2 * (1000 + 1e6 + 1000) / 1e12));  // reading the weights
  gpu.gemm_half_depth = 1000;
  CHECK(seconds(1000, 1000, 1000) == doctest::Approx(2e9 / 0.25e12));
  gpu.gemm_half_depth = 0;
  gpu.multiprocessors = 4;
  gpu.tiles = {{100, 100, 1}};
  CHECK(seconds(200, 200, 1000) == doctest::Approx(2 * 4e7 / 0.5e12));      // one full wave
  CHECK(seconds(200, 300, 1000) == doctest::Approx(2 * 2 * 4e7 / 0.5e12));  // six tiles: two waves of four
  CHECK(seconds(150, 200, 1000) == doctest::Approx(2 * 4e7 / 0.5e12));      // half-empty tiles take as long
  gpu.tiles.push_back({50, 100, 0.9});
  CHECK(seconds(100, 200, 1000) == doctest::Approx(2 * 2e7 / 0.5e12 / 0.9));  // four small ones beat two large ones
}

TEST_CASE("worked example of docs/simulator.md: compute of one rank") {
  const Mllm model = round_model();
  const Cluster cluster = round_cluster();
  const std::vector<PhaseShape> shapes = phase_shapes(model);
  const auto units = fsdp_units(shapes, 1);
  REQUIRE(units.size() == 2);
  CHECK(units[0].parameters == 6'002'000 + 589'000 + 5'002'000);
  CHECK(units[1].parameters == 6'002'000 + 1'000'000 + 1'000'000);

  const PhaseWork image = work_of({0})[0];
  CHECK(image.tokens == 2000);
  CHECK(image.outputs == 500);
  // 2,000 tokens · 12e6 = 24 GFLOP: 48 ms; attention 16 GFLOP: 64 ms; 2,000 tokens · 16,000 elements · 2 bytes:
  // 0.064 ms. Patch embedding 2,000 · 1.176e6: 4.704 ms; connector 500 outputs · 10e6: 10 ms.
  const PassSeconds vision = pass_seconds(shapes[0], image, cluster, {});
  CHECK(milliseconds(vision.forward(units[0])) == doctest::Approx(48 + 64 + 0.064 + 4.704 + 10));
  // Twice the matrices and bytes, 2.5 times the attention, the layer's forward pass once more; pixels have no gradient.
  CHECK(milliseconds(vision.backward(units[0])) == doctest::Approx(2 * 48.064 + 2.5 * 64 + 112.064 + 4.704 + 2 * 10));
  CHECK(milliseconds(pass_seconds(shapes[0], image, cluster, {.recompute = Recompute::none}).backward(units[0])) ==
        doctest::Approx(2 * 48.064 + 2.5 * 64 + 4.704 + 2 * 10));

  const PhaseWork text = work_of({0, 4})[1];
  // 2,000 tokens · 12e6: 48 ms; causal attention 2 · 1,000² · 2,000 = 4 GFLOP: 16 ms; 0.064 ms; head: 8 ms.
  const PassSeconds llm = pass_seconds(shapes[1], text, cluster, {});
  CHECK(milliseconds(llm.forward(units[1])) == doctest::Approx(72.064));
  CHECK(milliseconds(llm.backward(units[1])) == doctest::Approx(2 * 48.064 + 2.5 * 16 + 64.064 + 16));
  CHECK(model_flops(shapes[0], image) == doctest::Approx(3 * 47.356e9));
  CHECK(model_flops(shapes[1], text) == doctest::Approx(3 * 32e9));
}

TEST_CASE("worked example of docs/simulator.md: one step at home") {
  const PlayedStep played = play_round(balancers(Balancer::home, Balancer::home));
  const StepResult& step = played.result;
  // Every exchange is empty, so the critical path is: gather vision, then compute of rank 0 throughout.
  const double gather_vision = 0.75 * 11'593'000 * 2 / 20e9 * 1e3;
  CHECK(gather_vision == doctest::Approx(0.869475));
  const double vision_forward = 2 * 126.768;  // two images
  const double vision_backward = 2 * 392.896;
  const double llm_forward = 72.064;
  const double llm_backward = 216.192;
  const double reduce_vision = 0.75 * 11'593'000 * 4 / 20e9 * 1e3;  // nothing is left to hide it behind
  const double optimizer = (11'593'000.0 + 8'002'000.0) / 4 * 28 / 1e12 * 1e3;
  CHECK(milliseconds(step.seconds) == doctest::Approx(gather_vision + vision_forward + llm_forward + llm_backward +
                                                      vision_backward + reduce_vision + optimizer)
                                          .epsilon(1e-7));
  CHECK(step.exchange_seconds == 0);
  // Ranks 0 and 1 have the images, all ranks the same text; rank 0 never waits but for the first gathering and the last
  // reduction.
  CHECK(milliseconds(step.breakdown.compute[0]) == doctest::Approx((vision_forward + vision_backward) / 2));
  CHECK(milliseconds(step.breakdown.compute[1]) == doctest::Approx(llm_forward + llm_backward));
  CHECK(milliseconds(step.breakdown.optimizer) == doctest::Approx(optimizer).epsilon(1e-4));
  CHECK(step.breakdown.exposed_exchange == 0);
  CHECK(milliseconds(step.breakdown.exposed_collectives) >= (gather_vision + reduce_vision) / 2);
  CHECK(milliseconds(step.breakdown.waiting) >= (vision_forward + vision_backward) / 2 * 0.99);
  CHECK(step.breakdown.total() == doctest::Approx(step.seconds));
  CHECK(step.tokens == 8000);
  CHECK(step.model_flops == doctest::Approx(4 * 3 * 47.356e9 + 4 * 3 * 32e9));
}

TEST_CASE("worked example of docs/simulator.md: one step balanced") {
  const PlayedStep played = play_round({});
  const StepResult& step = played.result;
  const double vision_forward = 126.768;
  const double vision_backward = 392.896;
  // Images 1, 2, 3 leave for ranks 1, 2, 3: their 500 outputs of 1,000 · 2 bytes come back, one from each. Rank 1 gets
  // two, both from the other node: 2 MB at 10 GB/s, and the base of one exchange. Rank 2 sends to one peer.
  const double exchange = 0.010 + 0.2;
  // On the way back rank 1 sends to two peers, and the LLM's gradients, being reduced, hold the network first.
  const double reduce_llm = 0.75 * 8'002'000 * 4 / 20e9 * 1e3;
  const double exchange_back = reduce_llm + 0.010 + 2 * 0.001 + 0.2;
  const double reduce_vision = 0.75 * 11'593'000 * 4 / 20e9 * 1e3;
  const double optimizer = (11'593'000.0 + 8'002'000.0) / 4 * 28 / 1e12 * 1e3;
  // The input exchange holds the network first: image 3's pixels leave rank 1 together with image 2's, 4,000 patches of
  // 1,176 bytes to two peers; the weights of the vision layer are gathered behind it.
  const double input = 0.010 + 2 * 0.001 + 2 * 2000 * 1176 / 10e9 * 1e3;
  const double gather_vision = 0.869475;
  CHECK(milliseconds(step.exchange_seconds) == doctest::Approx(exchange + exchange_back).epsilon(1e-6));
  CHECK(milliseconds(step.seconds) ==
        doctest::Approx(input + gather_vision + vision_forward + exchange + 72.064 + 216.192 + exchange_back +
                        vision_backward + reduce_vision + optimizer)
            .epsilon(1e-6));
  CHECK(step.output_inter_node_bytes == 2 * 2 * 500 * 2000);
  CHECK(step.output_intra_node_bytes == 2 * 1 * 500 * 2000);
  CHECK(step.phases[0].idle_fraction() == doctest::Approx(0.0).epsilon(0.01));
}

TEST_CASE("memory of the worked example") {
  const Mllm model = round_model();
  Cluster cluster = round_cluster();
  cluster.software.reserved_bytes = 1000;
  cluster.software.fragmentation = 0.1;
  const std::vector<PhaseShape> shapes = phase_shapes(model);
  const std::vector<PhaseWork> work = work_of({0, 1});
  const Parallelism parallelism;
  Memory m = resident_memory(19'595'000, 11'593'000, 4, cluster, parallelism);
  for (std::size_t p = 0; p < 2; ++p) add_activations(m, p, shapes[p], work[p], 1, cluster, parallelism);
  add_logits(m, shapes[1], work[1], cluster, parallelism);
  m.exchange = 5000;
  add_fragmentation(m, cluster);
  CHECK(m.parameters == doctest::Approx(19'595'000.0 * 4 / 4));
  CHECK(m.gradients == doctest::Approx(19'595'000.0 * 4 / 4));
  CHECK(m.optimizer == doctest::Approx(19'595'000.0 * 8 / 4));
  CHECK(m.gathered == doctest::Approx(11'593'000.0 * 8));
  CHECK(m.activations[0] == doctest::Approx(4000 * 2000.0));
  CHECK(m.activations[1] == doctest::Approx(2000 * 2000.0));
  // The vision layer: 2 · 1,000 before and after norms each, 3,000 q, k, v, 1,000 attention, 2 · 1,000 MLP.
  CHECK(m.working_set == doctest::Approx(4000 * 10'000.0 * 2));
  CHECK(m.logits == doctest::Approx(1000 * 1000.0 * 6));
  CHECK(m.fragmentation == doctest::Approx(0.1 * (m.total() - m.fragmentation - 1000)));
  CHECK(m.largest({"vision", "llm"}).first == "gathered");
  // Not sharded: weights and gradients in full, the optimizer in four.
  const Memory zero1 = resident_memory(1e6, 1e6, 4, cluster, {.data = DataParallel::distributed_optimizer});
  CHECK(zero1.parameters == 2e6);
  CHECK(zero1.gradients == 4e6);
  CHECK(zero1.optimizer == 3e6);
  CHECK(zero1.gathered == 0);
}

TEST_CASE("activations of a GPT layer are those of arXiv 2205.05198") {
  Transformer gpt{
      .layers = 1, .hidden = 1024, .heads = 16, .kv_heads = 16, .head_dim = 64, .ffn = 4096, .causal = true};
  PhaseWork work;
  work.tokens = 2 * 512;
  work.attention_pairs = 2 * 512.0 * 512.0;
  Software software;
  software.flash_attention = false;
  software.dropout = true;
  software.sequence_parallel = false;
  software.selective_elementwise = 0;
  const double sbh = 2 * 512 * 1024;
  const double attention = 5.0 * 16 * 512 / 1024;
  const Parallelism four{.tensor = 4};
  CHECK(kept_bytes(gpt, work, software, four, Recompute::none) ==
        doctest::Approx(sbh * (10 + 24.0 / 4 + attention / 4)));
  CHECK(kept_bytes(gpt, work, software, four, Recompute::selective) == doctest::Approx(sbh * (10 + 24.0 / 4)));
  CHECK(kept_bytes(gpt, work, software, four, Recompute::full) == doctest::Approx(sbh * 2));
  software.sequence_parallel = true;
  CHECK(kept_bytes(gpt, work, software, four, Recompute::none) == doctest::Approx(sbh * (34 + attention) / 4));
  CHECK(kept_bytes(gpt, work, software, four, Recompute::full) == doctest::Approx(sbh * 2 / 4));
}

TEST_CASE("steps: compute is conserved, phases never beat their busiest rank, same seed gives the same figures") {
  test::check_property("step invariants", [] {
    const Mllm model = test::plain_model();
    const PhaseLengths lengths = test::lengths_of(model, test::any_samples(20));
    const Cluster cluster = round_cluster();
    const auto shard = *rc::gen::element(1U, 2U, 4U);
    Configuration configuration{.gpus = 4, .batch = 3, .steps = 2, .seed = 11};
    configuration.parallelism.shard = shard;
    configuration.parallelism.micro_batches = *rc::gen::element(1U, 2U, 3U);
    const auto name =
        *rc::gen::element<std::string>("none", "pre-balance", "llm-only", "orchmllm", "orchmllm-allgather", "movement");
    const StrategyResult a = simulate(
        model, lengths, cluster, configuration, strategy(name), {},
        [&](std::uint32_t, const StepPlan&, const PlayedStep& played) {
          Nanoseconds compute = 0;
          for (TaskId task = 0; task < played.tags.size(); ++task) {
            const Activity activity = played.tags[task].activity;
            if (activity == Activity::forward || activity == Activity::backward || activity == Activity::optimizer) {
              compute += played.graph.duration(task);
            }
          }
          RC_ASSERT(std::abs(played.result.busy_seconds * 4e9 - static_cast<double>(compute)) < 8.0);
          RC_ASSERT(played.result.busy_seconds <= played.result.seconds + 1e-9);
          const Breakdown& parts = played.result.breakdown;
          RC_ASSERT(std::abs(parts.total() - played.result.seconds) < 1e-9 * (1 + played.result.seconds));
          RC_ASSERT(std::min({parts.exposed_exchange, parts.exposed_collectives, parts.waiting, parts.optimizer}) >=
                    0.0);
          for (const PhaseTimes& phase : played.result.phases) {
            RC_ASSERT(phase.idle_fraction() >= -1e-9);
          }
        });
    const StrategyResult b = simulate(model, lengths, cluster, configuration, strategy(name));
    RC_ASSERT(a.step_seconds == b.step_seconds);
    RC_ASSERT(a.plan_hash == b.plan_hash);
    RC_ASSERT(a.mfu >= 0);
    RC_ASSERT(a.mfu < 1);
  });
}

TEST_CASE("padded sequences take the time of the longest, and count as what they are") {
  const Mllm model = round_model();
  const Cluster cluster = round_cluster();
  const std::vector<PhaseShape> shapes = phase_shapes(model);
  const PhaseShape& llm = shapes.back();
  const auto work = [&](std::initializer_list<std::pair<std::uint64_t, std::uint64_t>> units) {
    WorkSum sum(llm, cluster.gpu, {});
    for (const auto& [length, padded] : units) sum.add(length, 0, padded);
    return sum.work();
  };
  const PhaseWork padded = work({{300, 500}, {500, 500}, {20, 500}});
  const PhaseWork filled = work({{500, 0}, {500, 0}, {500, 0}});
  const PhaseWork packed = work({{300, 0}, {500, 0}, {20, 0}});
  CHECK(padded.tokens == 1500);
  CHECK(padded.padding_tokens == 680);
  const PassSeconds slow = pass_seconds(llm, padded, cluster, {});
  CHECK(slow.layer_forward == pass_seconds(llm, filled, cluster, {}).layer_forward);
  CHECK(slow.layer_backward == pass_seconds(llm, filled, cluster, {}).layer_backward);
  CHECK(model_flops(llm, padded) == doctest::Approx(model_flops(llm, packed)));
  CHECK(hardware_flops(llm, padded, {}, Recompute::none) == doctest::Approx(model_flops(llm, filled)));
  CHECK(hardware_flops(llm, padded, {}, Recompute::full) == hardware_flops(llm, filled, {}, Recompute::full));

  // Whole steps: tokens and model operations are those of packed sequences, and no step is faster.
  test::check_property("padded steps", [&] {
    const Mllm plain = test::plain_model();
    const PhaseLengths lengths = test::lengths_of(plain, test::any_samples(20));
    Configuration configuration{.gpus = 4, .batch = 3, .steps = 2, .seed = 11};
    configuration.parallelism.micro_batches = *rc::gen::element(1U, 2U);
    const Strategy& none = strategy("none");
    const StrategyResult as_packed = simulate(plain, lengths, cluster, configuration, none);
    configuration.padded = true;
    const StrategyResult as_padded = simulate(plain, lengths, cluster, configuration, none);
    for (std::size_t step = 0; step < 2; ++step) {
      RC_ASSERT(as_padded.steps[step].tokens == as_packed.steps[step].tokens);
      RC_ASSERT(std::abs(as_padded.steps[step].model_flops - as_packed.steps[step].model_flops) <=
                1e-9 * as_packed.steps[step].model_flops);
      RC_ASSERT(as_padded.steps[step].hardware_flops >= as_packed.steps[step].hardware_flops * (1 - 1e-9));
    }
    const StrategyResult balanced = simulate(plain, lengths, cluster, configuration, strategy("orchmllm"));
    RC_ASSERT(balanced.steps[0].tokens == as_packed.steps[0].tokens);
  });
  Configuration split{.gpus = 4, .batch = 3, .padded = true};
  CHECK_THROWS_WITH_AS((void)simulate(model, round_lengths(), cluster, split, strategy("movement+split")),
                       doctest::Contains("packed sequences"), InvalidInput);
}

TEST_CASE("a shard group must divide the ranks") {
  const Mllm model = round_model();
  const PhaseLengths lengths = round_lengths();
  const Cluster cluster = round_cluster();
  Configuration configuration{.gpus = 4, .batch = 2};
  configuration.parallelism.shard = 3;
  CHECK_THROWS_AS((void)simulate(model, lengths, cluster, configuration, strategy("none")), InvalidInput);
  CHECK_THROWS_WITH_AS((void)strategy("best"), doctest::Contains("llm-only"), InvalidInput);
}

TEST_CASE("shipped models have the sizes of their names; shipped clusters load") {
  const auto billions = [](const char* name) {
    return static_cast<double>(
               parameters(load_model(std::string(ORCHMLLM_SOURCE_DIR) + "/sim/models/" + name + ".toml"))) /
           1e9;
  };
  CHECK(billions("mllm-10b") == doctest::Approx(10).epsilon(0.03));
  CHECK(billions("mllm-18b") == doctest::Approx(18).epsilon(0.03));
  CHECK(billions("mllm-84b") == doctest::Approx(84).epsilon(0.03));
  for (const std::string name : {"h100-8x400g", "h200-8x400g", "a100-8x200g", "mpi-localhost"}) {
    CHECK(load_cluster(std::string(ORCHMLLM_SOURCE_DIR) + "/sim/clusters/" + name + ".toml").name == name);
  }
}
