#include "orchmllm/sim/uniform.hpp"

#include <algorithm>

namespace orch::sim {

namespace {

void add_sequence(WorkSum& sum, const UniformBatch& batch) {
  const std::uint64_t sample = batch.attention == 0 ? batch.length : std::min(batch.attention, batch.length);
  for (std::uint64_t begin = 0; begin < batch.length; begin += sample) {
    sum.add(std::min(sample, batch.length - begin), 0);
  }
}

}  // namespace

PlayedStep play_uniform(const Mllm& model, const UniformBatch& batch, std::uint32_t gpus, const Cluster& cluster,
                        const Parallelism& parallelism) {
  const std::vector<PhaseShape> shapes = phase_shapes(model);
  StepWork work{count_instances(gpus, parallelism), {}};
  for (const PhaseShape& shape : shapes) {
    WorkSum sum(shape, cluster.gpu, parallelism);
    const bool llm = &shape == &shapes.back();
    for (std::uint64_t s = 0; llm && s < batch.sequences; ++s) add_sequence(sum, batch);
    const bool split = llm || parallelism.pipeline > 1;
    work.work.emplace_back(split ? parallelism.micro_batches : 1, std::vector<PhaseWork>{sum.work()});
  }
  if (parallelism.pipeline > 1) return play_pipeline(shapes, work, cluster, parallelism);
  const Topology topology = uniform_topology(1, 1);
  return play_step(shapes, work, {{}, topology}, cluster, parallelism);
}

}  // namespace orch::sim
