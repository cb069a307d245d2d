// Prints the fingerprint of every solver's plan on fixed instances. scripts/check_determinism.sh compares what
// compilers and optimisation levels make of it.
#include <cstdio>
#include <numeric>
#include <vector>

#include "orchmllm/orchmllm.hpp"

namespace {

void show(const char* solver, std::uint32_t ranks, std::uint64_t fingerprint) {
  std::printf("%-24s %5u  %s\n", solver, ranks, orch::hex(fingerprint).c_str());
}

/// Two encoders and an LLM of one layer each.
orch::Mllm small_model() {
  const orch::Transformer layer{
      .layers = 1, .hidden = 1000, .heads = 1, .kv_heads = 1, .head_dim = 1000, .ffn = 1000, .causal = true};
  orch::Mllm model{"small", {}, layer};
  model.encoders.push_back({"vision", layer, orch::TiledImages{}, {4000, 1000, 1000}, 3});
  model.encoders.push_back({"audio", layer, orch::AudioFrames{}, {1000, 1000, 1000}, 128});
  return model;
}

/// Images, clips and text of heavy-tailed sizes.
orch::Sample some_sample(orch::Random& random) {
  orch::Sample sample;
  const double u = random.uniform() * 12;
  sample.text = 1 + static_cast<std::uint32_t>(u * u * u);
  for (double images = random.uniform() * 3; images >= 1; images -= 1) {
    sample.images.push_back({200 + static_cast<std::uint32_t>(random.uniform() * 2000), 600});
  }
  if (random.uniform() < 0.3) sample.audio.push_back({1 + static_cast<std::uint64_t>(random.uniform() * 3e7)});
  return sample;
}

void show_steps(std::uint32_t ranks) {
  using namespace orch;
  const Mllm model = small_model();
  Random random(ranks + 1);
  PhaseLengths lengths;
  for (std::uint32_t i = 0; i < ranks * 8; ++i) append(lengths, model, some_sample(random));
  std::vector<std::uint32_t> samples(lengths.samples());
  std::iota(samples.begin(), samples.end(), 0U);
  for (const Balancer balancer : {Balancer::lpt, Balancer::automatic, Balancer::movement}) {
    for (const Granularity granularity : {Granularity::sample, Granularity::unit}) {
      StepOptions options{.encoders = {.balancer = balancer, .granularity = granularity},
                          .llm = {.balancer = balancer},
                          .placer = [](const TrafficMatrix& bytes,
                                       const Topology& topology) { return placement::place(bytes, topology); },
                          .schedule = ExchangeSchedule::automatic,
                          .rates = {{3e11, 4e10}, 1e-5, 1e-6}};
      show("step plan", ranks,
           plan_step(model, lengths, samples, home_ranks(ranks, 8), uniform_topology(ranks, 8), options).hash);
    }
  }
}

}  // namespace

int main() {
  using namespace orch;
  for (const std::uint32_t ranks : {3U, 8U, 64U, 320U}) {
    Random random(ranks);
    const std::size_t n = std::size_t{ranks} * 32;
    std::vector<std::uint64_t> lengths(n);
    for (auto& length : lengths) {
      const double u = random.uniform() * 20;  // heavy tail by a cube: no library function involved
      length = 1 + static_cast<std::uint64_t>(u * u * u);
    }
    std::vector<Cost> costs(n);
    std::vector<std::uint32_t> home(n);
    for (std::size_t i = 0; i < n; ++i) {
      costs[i] = 24576 * lengths[i] + lengths[i] * lengths[i];
      home[i] = static_cast<std::uint32_t>(i / 32);
    }
    const ConvPackedCost conv{.conv_alpha = 3, .packed = {.alpha = 2, .beta = 1}};
    std::vector<ConvPackedCost::Batch> batches;
    for (const std::uint64_t length : lengths) batches.push_back({1, length, conv.packed(length)});
    const Topology topology = uniform_topology(ranks, 8);

    const Assignment lpt = balance::greedy(costs, ranks);
    show("greedy", ranks, lpt.fingerprint());
    show("karmarkar-karp", ranks, balance::karmarkar_karp(costs, ranks).fingerprint());
    show("refine", ranks, balance::refine(costs, lpt.rank_of, ranks).fingerprint());
    show("quadratic", ranks, balance::quadratic(lengths, ranks, {.alpha = 24576, .beta = 1}, 100).fingerprint());
    show("padded", ranks, balance::padded(lengths, ranks).fingerprint());
    show("conv-packed", ranks, balance::conv_packed(batches, ranks, conv).fingerprint());
    show("exact", ranks, balance::exact(std::span(costs).first(11), 3).fingerprint());
    show("balance", ranks, balance::balance(costs, ranks).assignment.fingerprint());
    for (const Counts counts : {Counts::equal, Counts::near_equal}) {
      show("balance, counts", ranks,
           balance::balance(costs, ranks, {.constraints = {.counts = counts}}).assignment.fingerprint());
    }
    std::vector<std::uint32_t> speeds(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) speeds[rank] = 3 + rank % 2;
    show("balance, speeds", ranks,
         balance::balance(costs, ranks, {.constraints = {.speeds = speeds}}).assignment.fingerprint());
    const std::uint64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
    show("balance, capacity", ranks,
         balance::balance(costs, ranks, {.constraints = {.weights = lengths, .capacity = tokens / ranks * 3 + 8000}})
             .assignment.fingerprint());
    const Movement moved = balance::movement(costs, lengths, home, topology);
    show("movement", ranks, moved.assignment.fingerprint());
    const TrafficMatrix matrix = traffic_matrix(home, lpt.rank_of, lengths, ranks);
    for (const PlacementObjective objective : {PlacementObjective::total, PlacementObjective::bottleneck}) {
      const Placement placed = placement::place(matrix, topology, objective);
      show("placement", ranks, Fingerprint().add_all(std::span<const std::uint32_t>(placed.rank_of)).value());
    }
    show("micro-batches", ranks,
         balance::microbatches(costs, lengths, home, ranks, {.token_cap = 40000}).fingerprint());
    show("split", ranks, balance::split(lengths, ranks, {.alpha = 24576, .beta = 1}).fingerprint());
    show_steps(ranks);
  }
}
