#include "orchmllm/sim/step_work.hpp"

#include <algorithm>
#include <span>

#include "orchmllm/balance/microbatch.hpp"
#include "orchmllm/cost/shape.hpp"

namespace orch::sim {

namespace {

/// micro-batch → tokens of the longest of these items.
std::vector<std::uint64_t> longest_items(const PhasePlan& phase, std::span<const std::uint32_t> items,
                                         std::uint32_t micro_batches,
                                         const std::vector<std::uint32_t>& micro_batch_of) {
  std::vector<std::uint64_t> longest(micro_batches, 0);
  for (const std::uint32_t item : items) {
    std::uint64_t& tokens = longest[micro_batch_of.empty() ? 0 : micro_batch_of[item]];
    tokens = std::max<std::uint64_t>(tokens, phase.length[item]);
  }
  return longest;
}

/// Work of phase `p` by micro-batch and instance. `micro_batch_of`: item → micro-batch; empty: there is one.
std::vector<std::vector<PhaseWork>> split_work(const StepModel& step, const StepPlan& plan, std::size_t p,
                                               std::uint32_t micro_batches,
                                               const std::vector<std::uint32_t>& micro_batch_of) {
  const PhaseShape& shape = step.shapes[p];
  const PhasePlan& phase = plan.phases[p];
  const std::uint32_t ranks = plan.ranks();
  const bool llm = p + 1 == plan.phases.size();
  const bool pieces = step.split != nullptr && llm;
  std::vector<std::vector<PhaseWork>> work(micro_batches, std::vector<PhaseWork>(ranks));
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<WorkSum> sums(micro_batches, WorkSum(shape, step.cluster.gpu, step.parallelism));
    std::vector<std::uint64_t> padded(micro_batches, 0);
    if (step.padded && llm) padded = longest_items(phase, phase.layout.items(rank), micro_batches, micro_batch_of);
    for (const std::uint32_t item : phase.layout.items(rank)) {
      const std::uint32_t m = micro_batch_of.empty() ? 0 : micro_batch_of[item];
      WorkSum& sum = sums[m];
      const std::uint32_t sample = plan.samples[phase.sample_of[item]];
      if (pieces && step.split->is_piece(sample)) {
        const SamplePiece& piece = step.split->pieces[sample - step.split->whole];
        sum.add_piece(piece.length, piece.pieces);
      } else {
        sum.add(phase.length[item], phase.output.empty() ? 0 : phase.output[item], padded[m]);
      }
    }
    for (std::uint32_t m = 0; m < micro_batches; ++m) work[m][rank] = sums[m].work();
  }
  return work;
}

/// The LLM's items in as many micro-batches as asked for, on the ranks where they are; those of like length together,
/// so that little is padded.
std::vector<std::uint32_t> padded_micro_batches(const StepModel& step, const StepPlan& plan) {
  const PhasePlan& llm = plan.llm();
  std::vector<std::uint32_t> micro_batch_of(llm.length.size(), 0);
  for (std::uint32_t rank = 0; rank < plan.ranks(); ++rank) {
    std::vector<std::uint32_t> items(llm.layout.items(rank).begin(), llm.layout.items(rank).end());
    std::stable_sort(items.begin(), items.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return llm.length[a] > llm.length[b]; });
    for (std::size_t i = 0; i < items.size(); ++i) {
      micro_batch_of[items[i]] = static_cast<std::uint32_t>(i * step.parallelism.micro_batches / items.size());
    }
  }
  return micro_batch_of;
}

/// The LLM's items in as many micro-batches as asked for, on the ranks where they are.
std::vector<std::uint32_t> llm_micro_batches(const StepModel& step, const StepPlan& plan) {
  if (step.padded) return padded_micro_batches(step, plan);
  const PhasePlan& llm = plan.llm();
  const PackedCost cost = llm_cost(step.model);
  std::vector<Cost> costs;
  std::vector<std::uint64_t> tokens;
  for (const std::uint32_t length : llm.length) {
    costs.push_back(cost(length));
    tokens.push_back(length);
  }
  MicrobatchOptions options;
  options.at_least = step.parallelism.micro_batches;
  return balance::microbatches(costs, tokens, llm.assignment.rank_of, plan.ranks(), options).microbatch_of;
}

/// Every instance's samples in the order in which they were drawn, so many at a time.
StepWork pipeline_work(const StepModel& step, const StepPlan& plan, std::uint32_t instances) {
  const std::uint32_t ranks = plan.ranks();
  const auto samples = static_cast<std::uint32_t>(plan.samples.size() / ranks);
  const auto micro_batches = static_cast<std::uint32_t>(ceil_div(samples, step.micro_batch));
  StepWork result{instances, {}};
  for (std::size_t p = 0; p < plan.phases.size(); ++p) {
    std::vector<std::uint32_t> micro_batch_of;
    for (const std::uint32_t sample : plan.phases[p].sample_of) {
      micro_batch_of.push_back(sample % samples / step.micro_batch);
    }
    result.work.push_back(split_work(step, plan, p, micro_batches, micro_batch_of));
  }
  return result;
}

}  // namespace

StepWork step_work(const StepModel& step, const StepPlan& plan, std::uint32_t instances) {
  if (step.parallelism.pipeline > 1) return pipeline_work(step, plan, instances);
  StepWork result{instances, {}};
  for (std::size_t p = 0; p < plan.phases.size(); ++p) {
    const bool split = p + 1 == plan.phases.size() && step.parallelism.micro_batches > 1;
    const std::vector<std::uint32_t> micro_batch_of =
        split ? llm_micro_batches(step, plan) : std::vector<std::uint32_t>{};
    result.work.push_back(split_work(step, plan, p, split ? step.parallelism.micro_batches : 1, micro_batch_of));
  }
  return result;
}

PlayedStep play(const StepModel& step, const StepPlan& plan, const Conditions& conditions) {
  const StepWork work = step_work(step, plan, plan.ranks());
  if (step.parallelism.pipeline > 1) {
    return play_pipeline(step.shapes, work, step.cluster, step.parallelism, conditions);
  }
  return play_step(step.shapes, work, {plan.routes, plan.topology, step.exchange, step.network}, step.cluster,
                   step.parallelism, conditions);
}

}  // namespace orch::sim
