#include "orchmllm/sim/memory.hpp"

#include <algorithm>

#include "orchmllm/model/flops.hpp"

namespace orch::sim {

std::vector<std::pair<std::string, double>> Memory::parts(const std::vector<std::string>& phases) const {
  std::vector<std::pair<std::string, double>> parts{
      {"parameters", parameters}, {"gradients", gradients}, {"optimizer", optimizer}, {"gathered", gathered}};
  for (std::size_t p = 0; p < activations.size(); ++p) parts.emplace_back("activations " + phases[p], activations[p]);
  parts.insert(parts.end(), {{"working_set", working_set},
                             {"logits", logits},
                             {"exchange", exchange},
                             {"communication", communication},
                             {"reserved", reserved},
                             {"fragmentation", fragmentation}});
  return parts;
}

double Memory::total() const {
  double sum = parameters + gradients + optimizer + gathered + working_set + logits + exchange + communication +
               reserved + fragmentation;
  for (const double bytes : activations) sum += bytes;
  return sum;
}

std::pair<std::string, double> Memory::largest(const std::vector<std::string>& phases) const {
  const auto all = parts(phases);
  return *std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
}

double kept_bytes(const Transformer& t, const PhaseWork& work, const Software& software, const Parallelism& parallelism,
                  Recompute recompute) {
  const double tensor = parallelism.tensor;
  const double residual = software.sequence_parallel ? tensor : 1;
  const auto hidden = static_cast<double>(t.hidden);
  const double tokens = work.tokens / parallelism.context;
  const double input = activation_bytes * hidden / residual;
  if (recompute == Recompute::full) return tokens * input;
  const bool selective = recompute == Recompute::selective;
  const double products = selective ? 1 - software.selective_gemm : 1;
  const double elementwise = selective ? 1 - software.selective_elementwise : 1;
  const auto query = static_cast<double>(t.heads * t.head_dim);
  const auto key_value = static_cast<double>(2 * t.kv_heads * t.head_dim);
  const auto ffn = static_cast<double>(t.ffn);
  double per_token = 2 * input;          // inputs of both norms
  per_token += elementwise * 2 * input;  // their outputs
  per_token += products * activation_bytes * (query + key_value) / tensor;
  per_token += activation_bytes * query / tensor;  // attention's output
  per_token += products * activation_bytes * (t.gated_mlp ? 2 : 1) * ffn / tensor;
  per_token += elementwise * activation_bytes * ffn / tensor;  // activation's output
  if (software.dropout) per_token += 2 * hidden / residual;    // two masks of a byte
  double bytes = tokens * per_token;
  if (!software.flash_attention && !selective) {
    // Scores, their softmax (2 bytes each) and a dropout mask (1 byte).
    bytes += 5 * static_cast<double>(t.heads) / tensor * work.attention_pairs / parallelism.context;
  }
  if (recompute == Recompute::alternate) return (bytes + tokens * input) / 2;
  return bytes;
}

Memory resident_memory(double parameters, double largest_unit, std::uint32_t instances, const Cluster& cluster,
                       const Parallelism& parallelism) {
  const Software& software = cluster.software;
  const double own = parameters / parallelism.tensor;
  const double shards = parallelism.optimizer_shards(instances);
  const bool frozen = parallelism.trainable == Trainable::adapters;  // what adapters keep is small
  const double master = frozen ? software.parameter_bytes : software.master_bytes;
  const double gradient = frozen ? 0 : software.gradient_bytes;
  const double moments = frozen ? 0 : software.moment_bytes;
  Memory memory;
  switch (parallelism.data) {
    case DataParallel::fsdp:
      memory.parameters = own * master / shards;
      memory.gradients = own * gradient / shards;
      memory.optimizer = own * moments / shards;
      // The unit in use and the prefetched one; one unit's full gradients before they are reduced.
      if (shards > 1) {
        memory.gathered =
            largest_unit / parallelism.tensor * (2 * software.parameter_bytes + software.reduced_gradient_bytes);
      }
      break;
    case DataParallel::distributed_optimizer:
    case DataParallel::replicated:
      memory.parameters = own * software.parameter_bytes;
      memory.gradients = own * gradient;
      memory.optimizer = own * (frozen ? 0 : master + moments) / shards;
      break;
  }
  memory.reserved = software.reserved_bytes;
  return memory;
}

void add_activations(Memory& memory, std::size_t phase, const PhaseShape& shape, const PhaseWork& work,
                     double layers_alive, const Cluster& cluster, const Parallelism& parallelism) {
  if (memory.activations.size() <= phase) memory.activations.resize(phase + 1, 0);
  const Transformer& t = shape.transformer;
  memory.activations[phase] += layers_alive * kept_bytes(t, work, cluster.software, parallelism, parallelism.recompute);
  if (parallelism.recompute == Recompute::none) return;
  memory.working_set =
      std::max(memory.working_set, kept_bytes(t, work, cluster.software, parallelism, Recompute::none));
}

void add_logits(Memory& memory, const PhaseShape& llm, const PhaseWork& work, const Cluster& cluster,
                const Parallelism& parallelism) {
  const double tokens =
      std::min(work.tokens / parallelism.context, static_cast<double>(cluster.software.loss_chunk_tokens));
  constexpr double logit_bytes = 2 + 4;  // 16-bit logits and their 32-bit softmax
  memory.logits = tokens * static_cast<double>(llm.transformer.vocab) / parallelism.tensor * logit_bytes;
}

void add_fragmentation(Memory& memory, const Cluster& cluster) {
  memory.fragmentation = (memory.total() - memory.reserved) * cluster.software.fragmentation;
}

}  // namespace orch::sim
