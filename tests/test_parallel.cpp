// The simulator's parallelism, strategies and disturbances against closed forms.
#include <fstream>
#include <numeric>
#include <optional>

#include "clusters.hpp"
#include "models.hpp"
#include "orchmllm/cost/shape.hpp"
#include "orchmllm/sim/simulate.hpp"
#include "orchmllm/sim/split_samples.hpp"
#include "orchmllm/sim/uniform.hpp"
#include "property.hpp"
#include "scratch.hpp"

using namespace orch;
using namespace orch::sim;

namespace {

/// An LLM of `layers` plain layers whose head weighs next to nothing.
Mllm plain_llm(std::uint64_t layers) {
  Mllm model{"llm", {}, test::plain_layer(true)};
  model.llm.layers = layers;
  model.llm.vocab = 1;
  return model;
}

/// A layer forward on 1,000 tokens: 12e9 operations of matrices, 2e9 of attention.
constexpr double layer_forward = 14e-3;
/// Nothing recomputed: 24e9 and 5e9.
constexpr double layer_backward = 29e-3;

Configuration four_gpus() { return {.gpus = 4, .batch = 3, .steps = 2, .seed = 5}; }

PhaseLengths mixed_lengths(const Mllm& model) {
  std::vector<Sample> samples;
  for (std::uint32_t i = 0; i < 64; ++i) {
    const std::uint32_t text = 100 + i * i * 7 % 900;
    const bool image = i % 3 == 0;
    const bool clip = i % 5 == 0;
    samples.push_back(
        test::counted(text, image ? std::vector<CountedUnit>{{400 + 40 * i, 100 + 10 * i}} : std::vector<CountedUnit>{},
                      clip ? std::vector<CountedUnit>{{300, 150}} : std::vector<CountedUnit>{}));
  }
  return test::lengths_of(model, samples);
}

}  // namespace

TEST_CASE("a pipeline of equal stages takes micro-batches + stages - 1 turns; interleaving divides the last part") {
  const Cluster cluster = test::plain_cluster();
  for (const std::uint32_t stages : {2U, 4U}) {
    for (const std::uint32_t chunks : {1U, 2U, 4U}) {
      for (const std::uint32_t micro_batches : {stages, 2 * stages, 4 * stages}) {
        const Parallelism p{
            .pipeline = stages, .virtual_stages = chunks, .micro_batches = micro_batches, .recompute = Recompute::none};
        const PlayedStep played = play_uniform(plain_llm(16), {1000, 1}, stages, cluster, p);
        const double chunk = 16.0 / stages / chunks * (layer_forward + layer_backward);
        const double expected = micro_batches * chunks * chunk + (stages - 1) * chunk;
        CAPTURE(stages);
        CAPTURE(chunks);
        CAPTURE(micro_batches);
        CHECK(played.result.seconds == doctest::Approx(expected).epsilon(1e-4));
        CHECK(played.result.breakdown.bubble == doctest::Approx((stages - 1) * chunk).epsilon(1e-3));
        CHECK(played.result.breakdown.total() == doctest::Approx(played.result.seconds));
      }
    }
  }
}

TEST_CASE("a pipeline refuses what its schedule cannot run") {
  const Cluster cluster = test::plain_cluster();
  const auto run = [&](std::uint64_t layers, const Parallelism& p) {
    (void)play_uniform(plain_llm(layers), {1000, 1}, 4, cluster, p);
  };
  CHECK_THROWS_WITH_AS(run(16, {.pipeline = 4, .virtual_stages = 2, .micro_batches = 6}),
                       doctest::Contains("multiple of the stages"), InvalidInput);
  CHECK_THROWS_WITH_AS(run(3, {.pipeline = 4, .micro_batches = 4}), doctest::Contains("cannot be cut"), InvalidInput);
  CHECK_THROWS_WITH_AS(run(16, {.tensor = 3, .micro_batches = 4}), doctest::Contains("not a multiple"), InvalidInput);
  // 14 layers in 8 chunks: one less for the embedding and for the head.
  CHECK_NOTHROW(run(14, {.pipeline = 4, .virtual_stages = 2, .micro_batches = 4}));
}

TEST_CASE("activations of a first stage: as many micro-batches as stages, more when interleaved") {
  const Cluster cluster = test::plain_cluster();
  const auto first_stage = [&](std::uint32_t chunks) {
    const Parallelism p{.pipeline = 4, .virtual_stages = chunks, .micro_batches = 8, .recompute = Recompute::full};
    const PlayedStep played = play_uniform(plain_llm(16), {1000, 1}, 4, cluster, p);
    CHECK(played.result.peak_lane == 0);
    return played.result.peak_memory.activations[0] / (1000 * 1000 * 2.0);  // in layers' inputs
  };
  CHECK(first_stage(1) == doctest::Approx(16));
  CHECK(first_stage(2) == doctest::Approx(16 * (1 + 3.0 / 8)));
  CHECK(first_stage(4) == doctest::Approx(16 * (1 + 3.0 / 16)));
}

TEST_CASE(
    "tensor parallelism divides products and adds four collectives a layer and way; context parallelism divides all") {
  Cluster cluster = test::plain_cluster();
  const auto seconds = [&](const Parallelism& p) {
    return play_uniform(plain_llm(2), {1000, 1}, 8, cluster, p).result.seconds;
  };
  Mllm wide = plain_llm(2);
  wide.llm.heads = wide.llm.kv_heads = 4;
  wide.llm.head_dim = 1000;
  const auto wide_seconds = [&](const Parallelism& p) {
    return play_uniform(wide, {1000, 1}, 8, cluster, p).result.seconds;
  };
  const double alone = wide_seconds({});
  CHECK(wide_seconds({.tensor = 4}) == doctest::Approx(alone / 4).epsilon(1e-3));
  cluster.links.nvlink_bandwidth = 1e9;
  cluster.software.parameter_bytes = cluster.software.reduced_gradient_bytes = 0;
  // 1,000 · 1,000 · 2 bytes, three quarters of them, four times forward, backward and in what is recomputed.
  const double ring = 0.75 * 2e6 / 1e9;
  CHECK(wide_seconds({.tensor = 4}) == doctest::Approx(alone / 4 + 2 * 3 * 4 * ring).epsilon(1e-3));
  cluster.software.tensor_overlap = 0.75;
  CHECK(wide_seconds({.tensor = 4}) == doctest::Approx(alone / 4 + 2 * 3 * ring).epsilon(1e-3));
  cluster.links.nvlink_bandwidth = 1e18;
  CHECK(seconds({.context = 4}) == doctest::Approx(seconds({}) / 4).epsilon(1e-3));
}

TEST_CASE("micro-batches add up; without no_sync FSDP reduces every one of them") {
  Cluster cluster = test::plain_cluster();
  const auto run = [&](std::uint32_t micro_batches, DataParallel data) {
    return play_uniform(plain_llm(4), {1000, 1}, 8, cluster,
                        {.micro_batches = micro_batches, .data = data, .recompute = Recompute::none});
  };
  const double one = 4 * (layer_forward + layer_backward);
  CHECK(run(3, DataParallel::fsdp).result.seconds == doctest::Approx(3 * one).epsilon(1e-4));
  CHECK(run(3, DataParallel::distributed_optimizer).result.seconds == doctest::Approx(3 * one).epsilon(1e-4));
  const auto reductions = [&](std::uint32_t micro_batches, DataParallel data) {
    const PlayedStep played = run(micro_batches, data);
    return std::count_if(played.tags.begin(), played.tags.end(),
                         [](const TaskTag& tag) { return tag.activity == Activity::reduce; });
  };
  CHECK(reductions(3, DataParallel::fsdp) == 4);
  CHECK(reductions(3, DataParallel::distributed_optimizer) == 4);
  CHECK(reductions(3, DataParallel::replicated) == 4);
  cluster.software.reduce_every_micro_batch = true;
  CHECK(reductions(3, DataParallel::fsdp) == 12);
  CHECK(reductions(3, DataParallel::replicated) == 4);
}

TEST_CASE("one instance stands for equal ones") {
  test::check_property("representative", [] {
    Cluster cluster = test::plain_cluster();
    cluster.gpus_per_node = *rc::gen::element(1U, 2U, 4U);
    cluster.links.nvlink_bandwidth = 3e9;
    cluster.links.nic_bandwidth = 1e9;
    cluster.links.collective_base_seconds = 1e-5;
    cluster.links.network_hop_seconds = 1e-6;
    const std::uint32_t instances = *rc::gen::element(2U, 4U, 8U);
    Parallelism p;
    p.data = *rc::gen::element(DataParallel::fsdp, DataParallel::distributed_optimizer, DataParallel::replicated);
    p.shard = p.data == DataParallel::fsdp ? *rc::gen::element(0U, 1U, 2U) : 0;
    p.micro_batches = *rc::gen::inRange(1U, 4U);
    p.pipeline = *rc::gen::element(1U, 2U);
    const Mllm model = plain_llm(4);
    const PlayedStep one = play_uniform(model, {500, 2}, instances * p.pipeline, cluster, p);
    const std::vector<PhaseShape> shapes = phase_shapes(model);
    WorkSum sum(shapes[0], cluster.gpu, p);
    sum.add(500, 0);
    sum.add(500, 0);
    const StepWork work{instances, {{p.micro_batches, std::vector<PhaseWork>(instances, sum.work())}}};
    const Topology topology = uniform_topology(instances, cluster.gpus_per_node);
    const PlayedStep all =
        p.pipeline > 1 ? play_pipeline(shapes, work, cluster, p) : play_step(shapes, work, {{}, topology}, cluster, p);
    RC_ASSERT(one.result.seconds == all.result.seconds);
    RC_ASSERT(std::abs(one.result.model_flops - all.result.model_flops) < 1e-6 * all.result.model_flops);
    RC_ASSERT(one.result.peak_memory.total() == all.result.peak_memory.total());
    RC_ASSERT(std::abs(one.result.breakdown.total() - one.result.seconds) < 1e-9);
  });
}

TEST_CASE("strategies: what moves, what is drawn, what it costs") {
  const Mllm model = test::plain_model();
  const PhaseLengths lengths = mixed_lengths(model);
  Cluster cluster = test::plain_cluster();
  cluster.gpus_per_node = 2;
  cluster.links.nvlink_bandwidth = 1e10;
  cluster.links.nic_bandwidth = 1e9;
  Configuration configuration = four_gpus();
  configuration.batch = 6;
  const auto run = [&](const char* name) { return simulate(model, lengths, cluster, configuration, strategy(name)); };
  const StrategyResult none = run("none");
  const StrategyResult sorted = run("pre-balance");
  const StrategyResult published = run("orchmllm");
  const StrategyResult gathered = run("orchmllm-allgather");
  CHECK(none.exchange_inter_node_bytes == 0);
  CHECK(sorted.exchange_inter_node_bytes == 0);
  CHECK(sorted.phases.back().imbalance < none.phases.back().imbalance);
  CHECK(published.phases.back().imbalance < sorted.phases.back().imbalance + 0.05);
  CHECK(gathered.plan_hash == published.plan_hash);
  CHECK(gathered.exchange_inter_node_bytes > published.exchange_inter_node_bytes);
  CHECK(gathered.peak_memory.exchange > published.peak_memory.exchange);
  CHECK(gathered.exchange_seconds > published.exchange_seconds);
  CHECK(published.hfu > published.mfu);
  CHECK_THROWS_WITH_AS((void)strategy("best"), doctest::Contains("orchmllm-allgather"), InvalidInput);
  configuration.parallelism.pipeline = 2;
  CHECK_THROWS_WITH_AS((void)run("orchmllm"), doctest::Contains("one pipeline stage"), InvalidInput);
}

TEST_CASE("a fluid network: what meets shares, the same bytes and plans, slower under a narrow spine") {
  const Mllm model = test::plain_model();
  const PhaseLengths lengths = mixed_lengths(model);
  Cluster cluster = test::plain_cluster();
  cluster.gpus_per_node = 2;
  cluster.links.nvlink_bandwidth = 1e10;
  cluster.links.nic_bandwidth = 1e9;
  cluster.links.collective_base_seconds = 1e-4;
  cluster.links.nodes_per_leaf = 1;
  cluster.links.rails = 1;
  Configuration configuration{.gpus = 8, .batch = 4, .steps = 2, .seed = 5};
  const auto run = [&](const char* name, NetworkModel network) {
    configuration.network = network;
    return simulate(model, lengths, cluster, configuration, strategy(name));
  };
  // Only weights are gathered. The first two units' meet at the begin: the first one is there later, the second is not.
  cluster.links.nic_bandwidth = 1e11;
  cluster.software.reduced_gradient_bytes = 0;
  const StrategyResult still = run("none", NetworkModel::endpoints);
  const StrategyResult still_fluid = run("none", NetworkModel::fluid);
  CHECK(still_fluid.step_seconds > still.step_seconds);
  CHECK(still_fluid.step_seconds == doctest::Approx(still.step_seconds).epsilon(0.005));
  cluster.links.nic_bandwidth = 1e9;
  cluster.software.reduced_gradient_bytes = 4;

  const StrategyResult moved = run("orchmllm", NetworkModel::endpoints);
  const StrategyResult fluid = run("orchmllm", NetworkModel::fluid);
  CHECK(fluid.plan_hash == moved.plan_hash);
  CHECK(fluid.exchange_inter_node_bytes == moved.exchange_inter_node_bytes);
  CHECK(fluid.step_seconds == doctest::Approx(moved.step_seconds).epsilon(0.1));
  CHECK(fluid.breakdown.total() == doctest::Approx(fluid.step_seconds));
  CHECK(run("orchmllm", NetworkModel::fluid).step_seconds == fluid.step_seconds);
  cluster.links.oversubscription = 8;
  CHECK(run("orchmllm", NetworkModel::fluid).exchange_seconds > 1.5 * fluid.exchange_seconds);
  CHECK(run("orchmllm", NetworkModel::endpoints).step_seconds == moved.step_seconds);
  configuration.parallelism.pipeline = 2;
  CHECK_THROWS_WITH_AS((void)run("none", NetworkModel::fluid), doctest::Contains("fluid"), InvalidInput);
}

TEST_CASE("splitting: equal pieces of what is above a fair share, nothing lost, better balance") {
  const Mllm model = test::plain_model();
  std::vector<Sample> samples(63, test::counted(500));
  samples.push_back(test::counted(40'000, {{4000, 1000}, {4000, 1000}, {4000, 1000}}));
  const PhaseLengths lengths = test::lengths_of(model, samples);
  const SplitLengths split = split_samples(model, lengths, 8, 4);
  CHECK(split.whole == 64);
  for (std::uint32_t sample = 0; sample < 63; ++sample) CHECK(split.count[sample] == 1);
  REQUIRE(split.count[63] == 4);
  const PackedCost cost = llm_cost(model);
  std::uint64_t units = 0;
  for (std::uint32_t piece = split.first[63]; piece < split.first[63] + 4; ++piece) {
    CHECK(split.is_piece(piece));
    CHECK(split.pieces[piece - 64].length == 43'000);
    CHECK(cost(split.lengths.llm_length[piece]) <= cost(43'000) / 4);
    CHECK(static_cast<double>(cost(split.lengths.llm_length[piece])) >= 0.99 * static_cast<double>(cost(43'000) / 4));
    units += split.lengths.encoders[0].first[piece + 1] - split.lengths.encoders[0].first[piece];
  }
  CHECK(units == 3);

  Cluster cluster = test::plain_cluster();
  cluster.gpus_per_node = 4;
  const Configuration configuration{.gpus = 8, .batch = 8, .steps = 1, .seed = 2};
  const StrategyResult whole = simulate(model, lengths, cluster, configuration, strategy("movement"));
  const StrategyResult pieces = simulate(model, lengths, cluster, configuration, strategy("movement+split"));
  CHECK(pieces.steps[0].tokens == doctest::Approx(whole.steps[0].tokens));
  CHECK(pieces.steps[0].model_flops == doctest::Approx(whole.steps[0].model_flops));
  CHECK(pieces.step_seconds < 0.5 * whole.step_seconds);
  CHECK(pieces.peak_memory.total() < whole.peak_memory.total());
  CHECK_THROWS_WITH_AS((void)split_samples(test::fusion_model(), lengths, 8, 4), doctest::Contains("cannot be split"),
                       InvalidInput);
}

TEST_CASE("megatron: a pipeline with encoders on its first stage, found if not given") {
  Mllm model = test::plain_model();
  model.llm.layers = 4;
  const PhaseLengths lengths = mixed_lengths(model);
  Cluster cluster = test::plain_cluster();
  Configuration configuration = four_gpus();
  configuration.batch = 4;
  std::vector<std::uint32_t> encoder_lanes;
  const StrategyResult found = simulate(model, lengths, cluster, configuration, strategy("megatron"), {},
                                        [&](std::uint32_t, const StepPlan&, const PlayedStep& played) {
                                          for (const TaskTag& tag : played.tags) {
                                            if (tag.activity != Activity::forward) continue;
                                            if (played.units[tag.unit].phase < 2) encoder_lanes.push_back(tag.lane);
                                          }
                                        });
  CHECK(found.parallelism.pipeline > 1);
  CHECK_FALSE(encoder_lanes.empty());
  for (const std::uint32_t lane : encoder_lanes) CHECK(lane % found.parallelism.pipeline == 0);
  cluster.gpu.memory_bytes = 1e6;
  CHECK_THROWS_WITH_AS((void)simulate(model, lengths, cluster, configuration, strategy("megatron")),
                       doctest::Contains("smallest needs"), Infeasible);
}

TEST_CASE("a slow GPU or link of a pipeline slows its own stage") {
  const Mllm model = plain_llm(4);
  std::vector<Sample> samples(16, test::counted(1000));
  const PhaseLengths lengths = test::lengths_of(model, samples);
  Cluster cluster = test::plain_cluster();
  Configuration configuration{
      .gpus = 4, .batch = 2, .steps = 1, .seed = 5};  // 2 instances of 2 stages, 4 micro-batches
  configuration.parallelism.pipeline = 2;
  configuration.parallelism.recompute = Recompute::none;
  configuration.parallelism.data = DataParallel::replicated;
  const auto played = [&](const Configuration& c) {
    std::optional<PlayedStep> step;
    (void)simulate(model, lengths, cluster, c, strategy("none"), {},
                   [&](std::uint32_t, const StepPlan&, const PlayedStep& p) { step = p; });
    return std::move(*step);
  };
  const auto times = [](const PlayedStep& step, auto&& chosen) {
    std::vector<Nanoseconds> sum(step.lanes, 0);
    for (TaskId task = 0; task < step.tags.size(); ++task) {
      if (chosen(step.tags[task])) sum[step.tags[task].lane] += step.graph.duration(task);
    }
    return sum;
  };
  const auto passes = [](const TaskTag& tag) {
    return tag.activity == Activity::forward || tag.activity == Activity::backward;
  };
  const std::vector<Nanoseconds> calm = times(played(configuration), passes);
  configuration.slow_gpus = {{2, 1.5}};  // GPUs 0 and 1 are the first stage of both instances, 2 and 3 the second
  std::vector<Nanoseconds> slow = times(played(configuration), passes);
  for (std::uint32_t lane = 0; lane < 4; ++lane) {
    CHECK(static_cast<double>(slow[lane]) ==
          doctest::Approx(static_cast<double>(calm[lane]) * (lane == 1 ? 1.5 : 1)).epsilon(1e-6));
  }
  cluster.links.nic_bandwidth = cluster.links.nvlink_bandwidth = 1e9;
  configuration.slow_gpus = {};
  const auto sends = [](const TaskTag& tag) { return tag.activity == Activity::send; };
  const auto reduces = [](const TaskTag& tag) { return tag.activity == Activity::reduce; };
  const PlayedStep narrow = played(configuration);
  configuration.slow_links = {{3, 2}};  // of instance 1, stage 1
  const PlayedStep slower = played(configuration);
  for (std::uint32_t lane = 0; lane < 4; ++lane) {
    CAPTURE(lane);
    CHECK(times(slower, sends)[lane] == (lane < 2 ? 1 : 2) * times(narrow, sends)[lane]);
  }
  CHECK(times(narrow, reduces)[0] > 0);
  CHECK(times(slower, reduces)[0] == times(narrow, reduces)[0]);  // collectives' lane is their stage
  CHECK(times(slower, reduces)[1] == 2 * times(narrow, reduces)[1]);
}

TEST_CASE("disturbances: slow GPUs, jitter, planning, a lost node") {
  const Mllm model = plain_llm(2);
  std::vector<Sample> samples(16, test::counted(1000));
  const PhaseLengths lengths = test::lengths_of(model, samples);
  const Cluster cluster = test::plain_cluster();
  const Configuration calm{.gpus = 4, .batch = 1, .steps = 4, .seed = 5};
  const auto run = [&](const Configuration& c) { return simulate(model, lengths, cluster, c, strategy("none")); };
  const StrategyResult normal = run(calm);

  Configuration slow = calm;
  slow.slow_gpus = {{2, 1.5}};
  CHECK(run(slow).step_seconds == doctest::Approx(1.5 * normal.step_seconds).epsilon(1e-6));
  slow.slow_gpus = {{4, 1.5}};
  CHECK_THROWS_AS((void)run(slow), InvalidInput);

  Configuration uneasy = calm;
  uneasy.jitter = 0.1;
  const StrategyResult shaken = run(uneasy);
  CHECK(shaken.step_seconds > normal.step_seconds);
  CHECK(shaken.step_seconds == run(uneasy).step_seconds);
  uneasy.seed = 6;
  CHECK(shaken.step_seconds != run(uneasy).step_seconds);

  Configuration planned = calm;
  planned.plan_seconds = normal.step_seconds / 2;
  CHECK(run(planned).step_seconds == doctest::Approx(normal.step_seconds));
  planned.plan_seconds = normal.step_seconds * 3;
  CHECK(run(planned).step_seconds == doctest::Approx(3 * normal.step_seconds));
  planned.overlap_planning = false;
  const StrategyResult exposed = run(planned);
  CHECK(exposed.step_seconds == doctest::Approx(4 * normal.step_seconds));
  CHECK(exposed.breakdown.planning == doctest::Approx(3 * normal.step_seconds));
  CHECK(exposed.breakdown.total() == doctest::Approx(exposed.step_seconds));

  Configuration lost = calm;
  lost.lost_node = NodeLoss{3, 2, 100};
  // Back to the checkpoint before step 2: steps 2 and 3 are run again.
  CHECK(run(lost).lost_seconds == doctest::Approx(100 + 2 * normal.step_seconds));
  CHECK(run(lost).total_seconds == doctest::Approx(100 + 6 * normal.step_seconds));
  lost.lost_node->step = 4;
  CHECK_THROWS_AS((void)run(lost), InvalidInput);
}

TEST_CASE("the largest batch that fits does, one more does not") {
  const Mllm model = test::plain_model();
  const PhaseLengths lengths = mixed_lengths(model);
  Cluster cluster = test::plain_cluster();
  cluster.gpu.memory_bytes = 400e6;
  Configuration configuration = four_gpus();
  const std::uint32_t batch = find_batch(model, lengths, cluster, configuration, strategy("orchmllm"), 1000);
  CHECK(batch > 0);
  CHECK(batch < 1000);
  configuration.batch = batch;
  CHECK_FALSE(simulate(model, lengths, cluster, configuration, strategy("orchmllm")).oom);
  configuration.batch = batch + 1;
  CHECK(simulate(model, lengths, cluster, configuration, strategy("orchmllm")).oom);
  CHECK(find_batch(model, lengths, cluster, configuration, strategy("orchmllm"), 3) == std::min(batch, 3U));
  cluster.gpu.memory_bytes = 1;
  CHECK(find_batch(model, lengths, cluster, configuration, strategy("orchmllm"), 1000) == 0);
}

TEST_CASE("a cluster file may extend another: lists are replaced, faults name the file that they stand in") {
  const test::Scratch scratch("parallel");
  std::ifstream shipped(std::string(ORCHMLLM_SOURCE_DIR) + "/sim/clusters/h100-8x400g.toml");
  const std::string base{std::istreambuf_iterator<char>(shipped), {}};
  (void)scratch.file("base.toml", base);
  const Cluster c = load_cluster(
      scratch.file("more.toml",
                   "extends = \"base\"\nname = \"more\"\n[links]\nnic_gbytes = 7\n[[gpu.attention]]\nhead_dim = 64\n"
                   "causal = true\nlength = [1]\nforward_tflops = [1]\nbackward_tflops = [1]\n[[gpu.attention]]\n"
                   "head_dim = 64\nlength = [1]\nforward_tflops = [1]\nbackward_tflops = [1]\n"));
  CHECK(c.name == "more");
  CHECK(c.links.nic_bandwidth == 7e9);
  CHECK(c.links.nvlink_bandwidth == load_cluster(scratch.file("base.toml", base)).links.nvlink_bandwidth);
  CHECK(c.gpu.attention.size() == 2);
  const auto fails = [&](const std::string& text, const char* message) {
    const std::string path = scratch.file("bad.toml", text);
    CHECK_THROWS_WITH_AS((void)load_cluster(path), doctest::Contains(message), InvalidInput);
  };
  fails("extends = \"base\"\n[links]\nnic_gbytes = -7\n", "bad.toml:3: nic_gbytes must be");
  fails("extends = \"base\"\n[gpu]\nnics = 7\n", "bad.toml:3: unknown key nics");
  fails("extends = \"bad\"\n", "goes round in a circle");
  fails("extends = 7\n", "bad.toml:1: extends must be a string");
  fails("extends = \"nowhere\"\n", "nowhere");
  const std::string broken = base.substr(0, base.find("nic_gbytes")) + "nic_gbytes = 0\n" +
                             base.substr(base.find('\n', base.find("nic_gbytes")) + 1);
  (void)scratch.file("broken.toml", broken);
  fails("extends = \"broken\"\n", "broken.toml:");
}
