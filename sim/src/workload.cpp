#include "orchmllm/sim/workload.hpp"

#include <algorithm>
#include <array>

#include "orchmllm/model/flops.hpp"

namespace orch::sim {

namespace {

constexpr double backward_linear = 2.0;     // gradients of inputs and of weights
constexpr double backward_attention = 2.5;  // FlashAttention's count: scores are recomputed
constexpr double bytes_per_element = 2;     // 16-bit activations

/// Head size of the kernel that runs heads of `head_dim`: the next size that exists.
std::uint64_t kernel_head_dim(const Cluster& cluster, std::uint64_t head_dim) {
  const auto found = std::lower_bound(cluster.attention_head_dims.begin(), cluster.attention_head_dims.end(), head_dim);
  return found != cluster.attention_head_dims.end() ? *found : head_dim;
}

/// The measured kernel that stands for heads of `head_dim`: same mask, the closest size at or above, else the largest.
const AttentionRate& attention_rate(const Cluster& cluster, std::uint64_t head_dim, bool causal) {
  const AttentionRate* best = nullptr;
  for (const AttentionRate& rate : cluster.attention) {
    if (rate.causal != causal) continue;
    const bool fits = rate.head_dim >= head_dim;
    const bool best_fits = best != nullptr && best->head_dim >= head_dim;
    if (best == nullptr || (fits && (!best_fits || rate.head_dim < best->head_dim)) ||
        (!fits && !best_fits && rate.head_dim > best->head_dim)) {
      best = &rate;
    }
  }
  return *best;
}

/// Elements that memory-bound operators of one forward layer read and write per token.
double memory_bound_elements(const Transformer& t) {
  const auto hidden = static_cast<double>(t.hidden);
  const auto rotated = static_cast<double>((t.heads + t.kv_heads) * t.head_dim);
  const auto ffn = static_cast<double>(t.ffn);
  const double norms = 2 * 2 * hidden;      // read, write
  const double residuals = 2 * 3 * hidden;  // read two, write one
  const double activation = (t.gated_mlp ? 3 : 2) * ffn;
  return norms + residuals + 2 * rotated + activation;
}

/// Elements of one layer's activations that its backward pass needs, per token.
double saved_elements(const Transformer& t) {
  const auto hidden = static_cast<double>(t.hidden);
  const auto query = static_cast<double>(t.heads * t.head_dim);
  const auto key_value = static_cast<double>(2 * t.kv_heads * t.head_dim);
  const double mlp = (t.gated_mlp ? 3 : 2) * static_cast<double>(t.ffn);
  return 4 * hidden + 2 * query + key_value + mlp;  // inputs and outputs of both norms, q, k, v, attention, MLP
}

double layer_linear_flops(const Transformer& t) { return 2.0 * static_cast<double>(layer_matrix_parameters(t)); }

}  // namespace

std::vector<PhaseShape> phase_shapes(const Mllm& model) {
  std::vector<PhaseShape> shapes;
  for (const Encoder& encoder : model.encoders) {
    PhaseShape shape;
    shape.name = encoder.phase;
    shape.transformer = encoder.transformer;
    shape.attention_span = attention_span(encoder.rule);
    shape.padded_front_end = std::holds_alternative<AudioFrames>(encoder.rule);
    shape.front_end_flops_per_token = static_cast<double>(front_end_flops_per_token(encoder));
    shape.connector_flops_per_output = static_cast<double>(connector_flops_per_token(encoder.connector));
    shape.first_parameters = static_cast<double>(front_end_parameters(encoder));
    shape.last_parameters = static_cast<double>(parameters(encoder.connector));
    shapes.push_back(shape);
  }
  PhaseShape llm;
  llm.name = "llm";
  llm.transformer = model.llm;
  const auto embedding = static_cast<double>(model.llm.vocab * model.llm.hidden);
  llm.head_flops_per_token = 2 * embedding;
  llm.first_parameters = model.llm.tied_embeddings ? 0 : embedding;
  llm.last_parameters = embedding;
  shapes.push_back(llm);
  return shapes;
}

std::vector<PhaseWork> rank_work(const PhaseShape& shape, const PhasePlan& plan, std::uint32_t ranks,
                                 const Cluster& cluster) {
  const Transformer& t = shape.transformer;
  const std::uint64_t kernel_dim = kernel_head_dim(cluster, t.head_dim);
  const double padding = static_cast<double>(kernel_dim) / static_cast<double>(t.head_dim);
  const AttentionRate& rate = attention_rate(cluster, kernel_dim, t.causal);
  const auto pair_flops = static_cast<double>(attention_flops_per_pair(t));

  std::vector<PhaseWork> work(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    PhaseWork& sum = work[rank];
    double longest = 0;
    for (const std::uint32_t item : plan.layout.items(rank)) {
      const std::uint32_t length = plan.length[item];
      if (!plan.output.empty()) sum.outputs += plan.output[item];
      if (length == 0) continue;
      const double pairs = attention_pairs(length, shape.attention_span);
      const auto block = shape.attention_span == 0 ? length : std::min<std::uint64_t>(length, shape.attention_span);
      const double flops = pairs * pair_flops * padding;
      sum.tokens += length;
      sum.attention_pairs += pairs;
      sum.attention_forward_seconds += flops / rate.forward_flops.at(static_cast<double>(block));
      sum.attention_backward_seconds += backward_attention * flops / rate.backward_flops.at(static_cast<double>(block));
      longest = std::max(longest, static_cast<double>(length));
    }
    const auto units = static_cast<double>(plan.layout.items(rank).size());
    sum.padded_tokens = shape.padded_front_end ? units * longest : sum.tokens;
  }
  return work;
}

std::vector<Unit> fsdp_units(const std::vector<PhaseShape>& shapes, std::uint32_t layers_per_unit) {
  std::vector<Unit> units;
  for (std::size_t phase = 0; phase < shapes.size(); ++phase) {
    const PhaseShape& shape = shapes[phase];
    const auto per_layer = static_cast<double>(layer_parameters(shape.transformer));
    for (std::uint64_t layer = 0; layer < shape.transformer.layers; layer += layers_per_unit) {
      Unit unit{phase, std::min<std::uint64_t>(layers_per_unit, shape.transformer.layers - layer), layer == 0,
                layer + layers_per_unit >= shape.transformer.layers, 0};
      unit.parameters = static_cast<double>(unit.layers) * per_layer + (unit.first ? shape.first_parameters : 0) +
                        (unit.last ? shape.last_parameters : 0);
      units.push_back(unit);
    }
  }
  return units;
}

namespace {

double gemm_rate(const PhaseShape& shape, const Cluster& cluster) {
  return cluster.gemm_flops.at(static_cast<double>(shape.transformer.hidden));
}

/// Matrix work of a unit's front end, connector and head, forward.
double ends_flops(const Unit& unit, const PhaseShape& shape, const PhaseWork& work) {
  double flops = 0;
  if (unit.first) flops += work.padded_tokens * shape.front_end_flops_per_token;
  if (unit.last) flops += work.outputs * shape.connector_flops_per_output + work.tokens * shape.head_flops_per_token;
  return flops;
}

/// Seconds of `passes` times a unit's matrix and memory-bound work, with at least one reading of its weights a pass
/// and one launch of every kernel.
double dense_seconds(const Unit& unit, const PhaseShape& shape, const PhaseWork& work, const Cluster& cluster,
                     double passes) {
  const auto layers = static_cast<double>(unit.layers);
  const double flops = layers * work.tokens * layer_linear_flops(shape.transformer) + ends_flops(unit, shape, work);
  const double weights = unit.parameters * cluster.parameter_bytes / cluster.memory_bandwidth;
  const double matrix = std::max(flops / gemm_rate(shape, cluster), work.tokens > 0 ? weights : 0.0);
  const double memory =
      layers * work.tokens * memory_bound_elements(shape.transformer) * bytes_per_element / cluster.memory_bandwidth;
  return passes * (matrix + memory);
}

double at_least_launches(const Unit& unit, const Cluster& cluster, double passes, double seconds) {
  const double launches = static_cast<double>(unit.layers) * cluster.kernels_per_layer * cluster.launch_seconds;
  return std::max(seconds, passes * launches);
}

double share_of_layers(const Unit& unit, const PhaseShape& shape) {
  return static_cast<double>(unit.layers) / static_cast<double>(shape.transformer.layers);
}

}  // namespace

double forward_seconds(const Unit& unit, const PhaseShape& shape, const PhaseWork& work, const Cluster& cluster) {
  const double attention = share_of_layers(unit, shape) * work.attention_forward_seconds;
  return at_least_launches(unit, cluster, 1, dense_seconds(unit, shape, work, cluster, 1) + attention);
}

double backward_seconds(const Unit& unit, const PhaseShape& shape, const PhaseWork& work, const Cluster& cluster) {
  const double attention = share_of_layers(unit, shape) * work.attention_backward_seconds;
  const double backward = at_least_launches(unit, cluster, backward_linear,
                                            dense_seconds(unit, shape, work, cluster, backward_linear) + attention);
  return backward + forward_seconds(unit, shape, work, cluster);
}

double model_flops(const PhaseShape& shape, const PhaseWork& work) {
  const Transformer& t = shape.transformer;
  const double forward = work.tokens * (static_cast<double>(t.layers) * layer_linear_flops(t) +
                                        shape.front_end_flops_per_token + shape.head_flops_per_token) +
                         work.outputs * shape.connector_flops_per_output +
                         work.attention_pairs * static_cast<double>(attention_flops_per_pair(t));
  return 3 * forward;
}

std::pair<std::string, double> Memory::largest() const {
  const std::array<std::pair<const char*, double>, 7> parts{{{"states", states},
                                                             {"gathered", gathered},
                                                             {"checkpoints", checkpoints},
                                                             {"working_set", working_set},
                                                             {"logits", logits},
                                                             {"exchange", exchange},
                                                             {"reserved", reserved}}};
  const auto& part =
      *std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return {part.first, part.second};
}

Memory rank_memory(const std::vector<PhaseShape>& shapes, const std::vector<Unit>& units,
                   std::span<const PhaseWork> work, double exchange_bytes, std::uint32_t shard,
                   const Cluster& cluster) {
  Memory memory;
  double parameters = 0;
  double largest_unit = 0;
  for (const Unit& unit : units) {
    parameters += unit.parameters;
    largest_unit = std::max(largest_unit, unit.parameters);
  }
  memory.states = parameters * cluster.state_bytes / shard;
  // Two units' weights: the one in use and the prefetched one; one unit's full gradients before they are reduced.
  if (shard > 1) memory.gathered = largest_unit * (2 * cluster.parameter_bytes + cluster.gradient_bytes);
  for (std::size_t phase = 0; phase < shapes.size(); ++phase) {
    const Transformer& t = shapes[phase].transformer;
    memory.checkpoints += work[phase].tokens * static_cast<double>(t.hidden * t.layers) * bytes_per_element;
    memory.working_set = std::max(memory.working_set, work[phase].tokens * saved_elements(t) * bytes_per_element);
  }
  const double chunk = std::min(work.back().tokens, static_cast<double>(cluster.loss_chunk_tokens));
  const double logit_bytes = 2 + 4;  // 16-bit logits and their 32-bit softmax
  memory.logits = chunk * static_cast<double>(shapes.back().transformer.vocab) * logit_bytes;
  memory.exchange = exchange_bytes;
  const double allocated = memory.total();
  memory.reserved = cluster.reserved_bytes + allocated * cluster.fragmentation;
  return memory;
}

}  // namespace orch::sim
