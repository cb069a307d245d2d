#include "choose_pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "orchmllm/base/error.hpp"
#include "orchmllm/orchestrate/sampler.hpp"
#include "step_model.hpp"

namespace orch::sim {

namespace {

struct Trial {
  double tokens_per_second = 0;  ///< of one GPU
  double memory = 0;
};

Trial try_out(const Mllm& model, const PhaseLengths& lengths, const Cluster& cluster, const Strategy& strategy,
              const Configuration& configuration) {
  const Parallelism& p = configuration.parallelism;
  const std::uint32_t instances = configuration.gpus / p.gpus();
  const std::uint32_t tried = std::min(instances, 2U);
  const std::uint32_t samples = configuration.batch * p.gpus();
  const std::vector<PhaseShape> shapes = phase_shapes(model);
  const StepModel step = step_model(model, shapes, cluster, configuration, strategy);
  const StepPlan plan = plan_step(model, lengths, Sampler(lengths.samples(), configuration.seed).next(tried * samples),
                                  home_ranks(tried, samples), uniform_topology(tried, 1), strategy.options);
  const PlayedStep played = play_pipeline(shapes, step_work(step, plan, instances), cluster, p);
  return {played.result.tokens / played.result.seconds / configuration.gpus, played.result.peak_memory.total()};
}

/// All ways to cut the model that the GPUs, the layers and the batch allow.
std::vector<Configuration> candidates(const Mllm& model, const Cluster& cluster, const Configuration& given) {
  std::vector<Configuration> result;
  for (std::uint32_t tensor = 1; tensor <= cluster.gpus_per_node; tensor *= 2) {
    for (std::uint32_t pipeline = 2; pipeline <= 16; ++pipeline) {
      if (model.llm.layers % pipeline != 0 || given.gpus % (tensor * pipeline) != 0) continue;
      for (const std::uint32_t chunks : {1U, 2U, 4U}) {
        if (model.llm.layers % (pipeline * chunks) != 0) continue;
        for (const std::uint32_t micro_batch : {1U, 2U, 4U}) {
          const std::uint32_t samples = given.batch * tensor * pipeline;
          if (samples % micro_batch != 0 || (chunks > 1 && samples / micro_batch % pipeline != 0)) continue;
          for (const Recompute recompute : {Recompute::none, Recompute::full}) {
            Configuration candidate = given;
            candidate.micro_batch = micro_batch;
            candidate.parallelism.tensor = tensor;
            candidate.parallelism.pipeline = pipeline;
            candidate.parallelism.virtual_stages = chunks;
            candidate.parallelism.data = DataParallel::distributed_optimizer;
            candidate.parallelism.recompute = recompute;
            result.push_back(candidate);
          }
        }
      }
    }
  }
  return result;
}

}  // namespace

void choose_pipeline(const Mllm& model, const PhaseLengths& lengths, const Cluster& cluster, const Strategy& strategy,
                     Configuration& configuration) {
  const Configuration given = configuration;
  double fastest = 0;
  double smallest = std::numeric_limits<double>::max();
  for (const Configuration& candidate : candidates(model, cluster, given)) {
    const Trial trial = try_out(model, lengths, cluster, strategy, candidate);
    smallest = std::min(smallest, trial.memory);
    if (trial.memory > cluster.gpu.memory_bytes || trial.tokens_per_second <= fastest) continue;
    fastest = trial.tokens_per_second;
    configuration = candidate;
  }
  if (fastest > 0) return;
  if (smallest == std::numeric_limits<double>::max()) {
    throw Infeasible(
        fmt::format("no pipeline of {} divides {} GPUs and {} LLM layers", model.name, given.gpus, model.llm.layers));
  }
  constexpr double gib = 1024.0 * 1024.0 * 1024.0;
  throw Infeasible(fmt::format("no pipeline of {} fits into {:.1f} GiB a GPU: the smallest needs {:.1f} GiB",
                               model.name, cluster.gpu.memory_bytes / gib, smallest / gib));
}

}  // namespace orch::sim
