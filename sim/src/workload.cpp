#include "orchmllm/sim/workload.hpp"

#include <algorithm>
#include <cmath>

#include "orchmllm/model/flops.hpp"
#include "orchmllm/sim/collectives.hpp"

namespace orch::sim {

namespace {

constexpr double backward_attention = 2.5;  // FlashAttention's count: scores are recomputed

/// Elements that memory-bound operators of one forward layer read and write per token.
struct ElementwiseElements {
  double residual = 0;  ///< norms and residuals: split only with sequence parallelism
  double inner = 0;     ///< rotary embedding and activation: split with heads and MLP
};

ElementwiseElements elementwise_elements(const Transformer& t) {
  const auto hidden = static_cast<double>(t.hidden);
  const auto rotated = static_cast<double>((t.heads + t.kv_heads) * t.head_dim);
  const auto ffn = static_cast<double>(t.ffn);
  const double norms = 2 * 2 * hidden;      // read, write
  const double residuals = 2 * 3 * hidden;  // read two, write one
  return {norms + residuals, 2 * rotated + (t.gated_mlp ? 3 : 2) * ffn};
}

/// Elements that adapters beside a layer's four products read and write per token: each reads the product's input, and
/// reads and writes its output. Their own operations are few.
double adapter_elements(const Transformer& t) {
  const auto hidden = static_cast<double>(t.hidden);
  const auto query = static_cast<double>(t.heads * t.head_dim);
  const auto key_value = static_cast<double>(2 * t.kv_heads * t.head_dim);
  const auto ffn = static_cast<double>(t.ffn);
  const double inputs = 2 * hidden + query + ffn;
  const double outputs = query + key_value + 2 * hidden + (t.gated_mlp ? 2 : 1) * ffn;
  return inputs + 2 * outputs;
}

/// What the backward pass repeats of a forward layer, as shares.
struct Repeated {
  double gemm = 0;
  double attention = 0;
  double elementwise = 0;
};

Repeated repeated(const Software& software, Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return {};
    case Recompute::selective:
      return {software.selective_gemm, software.flash_attention ? 0.0 : 1.0, software.selective_elementwise};
    case Recompute::alternate:
      return {0.5, 0.5, 0.5};
    case Recompute::full:
      return {1, 1, 1};
  }
  return {};
}

/// ⌈a / b⌉ of heads or groups of heads: what the busiest tensor-parallel rank has.
double split_evenly(std::uint64_t a, std::uint64_t b) { return static_cast<double>(ceil_div(a, b)); }

ProductSeconds layer_products(const Transformer& t, double tokens, const Cluster& cluster, std::uint32_t tensor) {
  const Precision precision = cluster.software.precision;
  const auto head_dim = static_cast<double>(t.head_dim);
  const auto hidden = static_cast<double>(t.hidden);
  const double query = split_evenly(t.heads, tensor) * head_dim;
  const double key_value = 2 * split_evenly(t.kv_heads, tensor) * head_dim;
  const double ffn = split_evenly(t.ffn, tensor);
  ProductSeconds sum = product_seconds(tokens, query + key_value, hidden, precision, cluster.gpu);
  sum += product_seconds(tokens, hidden, query, precision, cluster.gpu);
  sum += product_seconds(tokens, (t.gated_mlp ? 2 : 1) * ffn, hidden, precision, cluster.gpu);
  sum += product_seconds(tokens, hidden, ffn, precision, cluster.gpu);
  return sum;
}

struct EndSeconds {
  double forward = 0;
  double backward = 0;
};

/// Weights outside of the layers stay in 16 bits.
EndSeconds end_seconds(const std::vector<EndProduct>& products, const PhaseWork& work, const Cluster& cluster,
                       const Parallelism& parallelism) {
  EndSeconds sum;
  for (const EndProduct& product : products) {
    const double rows = product.rows == EndProduct::Rows::tokens             ? work.tokens
                        : product.rows == EndProduct::Rows::front_end_tokens ? work.front_end_tokens
                                                                             : work.outputs;
    const double n = product.split ? std::ceil(product.n / parallelism.tensor) : product.n;
    const ProductSeconds seconds =
        product_seconds(rows * product.rows_scale / parallelism.context, n, product.k, Precision::bf16, cluster.gpu);
    sum.forward += seconds.forward;
    if (product.input_gradient) sum.backward += seconds.input_gradient;
    if (parallelism.trainable == Trainable::full) sum.backward += seconds.weight_gradient;
  }
  return sum;
}

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
    const auto width = static_cast<double>(encoder.transformer.hidden);
    using Rows = EndProduct::Rows;
    if (const auto* audio = std::get_if<AudioFrames>(&encoder.rule)) {
      const auto channels = static_cast<double>(encoder.input_channels);
      shape.first_products = {
          {Rows::front_end_tokens, static_cast<double>(audio->conv_stride), width, 3 * channels, false, false},
          {Rows::front_end_tokens, 1, width, 3 * width, false, true}};
    } else if (has_raw_input(encoder)) {
      const double patch = (shape.first_parameters - width) / width;
      shape.first_products = {{Rows::front_end_tokens, 1, width, patch, false, false}};
    }
    const Connector& c = encoder.connector;
    shape.last_products = {
        {Rows::outputs, 1, static_cast<double>(c.hidden), static_cast<double>(c.input), false, true},
        {Rows::outputs, 1, static_cast<double>(c.output), static_cast<double>(c.hidden), false, true}};
    shapes.push_back(shape);
  }
  PhaseShape llm;
  llm.name = "llm";
  llm.transformer = model.llm;
  const auto embedding = static_cast<double>(model.llm.vocab * model.llm.hidden);
  llm.head_flops_per_token = 2 * embedding;
  llm.first_parameters = model.llm.tied_embeddings ? 0 : embedding;
  llm.last_parameters = embedding;
  llm.last_products = {{EndProduct::Rows::tokens, 1, static_cast<double>(model.llm.vocab),
                        static_cast<double>(model.llm.hidden), true, true}};
  shapes.push_back(llm);
  return shapes;
}

WorkSum::WorkSum(const PhaseShape& shape, const Gpu& gpu, const Parallelism& parallelism)
    : shape_(shape),
      rate_(attention_rate(gpu, kernel_head_dim(gpu, shape.transformer.head_dim), shape.transformer.causal)) {
  const Transformer& t = shape.transformer;
  const double padding = static_cast<double>(kernel_head_dim(gpu, t.head_dim)) / static_cast<double>(t.head_dim);
  pair_flops_ = static_cast<double>(attention_flops_per_pair(t)) * padding / gpu.attention_scale;
  // Zig-zag: every context-parallel GPU has two pieces of a sequence.
  if (t.causal && parallelism.context > 1) shrink_ = 2.0 * parallelism.context;
}

void WorkSum::add(std::uint64_t length, std::uint64_t outputs, std::uint64_t padded) {
  ++units_;
  sum_.outputs += static_cast<double>(outputs);
  if (padded > length) {
    sum_.padding_tokens += static_cast<double>(padded - length);
    sum_.padding_pairs +=
        attention_pairs(padded, shape_.attention_span) - attention_pairs(length, shape_.attention_span);
    length = padded;
  }
  if (length == 0) return;
  const double pairs = attention_pairs(length, shape_.attention_span);
  const auto block = shape_.attention_span == 0 ? length : std::min<std::uint64_t>(length, shape_.attention_span);
  const double flops = pairs * pair_flops_;
  const double piece = static_cast<double>(block) / shrink_;
  sum_.tokens += static_cast<double>(length);
  sum_.attention_pairs += pairs;
  sum_.attention_forward_seconds += flops / rate_.forward_flops.at(piece);
  sum_.attention_backward_seconds += backward_attention * flops / rate_.backward_flops.at(piece);
  sum_.longest = std::max(sum_.longest, static_cast<double>(length));
}

void WorkSum::add_piece(std::uint64_t length, std::uint32_t pieces) {
  ++units_;
  const auto l = static_cast<double>(length);
  const double flops = l * l / pieces * pair_flops_;
  const double piece = l / (2.0 * pieces * shrink_);
  sum_.tokens += l / pieces;
  sum_.attention_pairs += l * l / pieces;
  sum_.attention_forward_seconds += flops / rate_.forward_flops.at(piece);
  sum_.attention_backward_seconds += backward_attention * flops / rate_.backward_flops.at(piece);
  sum_.longest = std::max(sum_.longest, l / pieces);
  sum_.ring_tokens += l * (pieces - 1) / pieces;
}

PhaseWork WorkSum::work() const {
  PhaseWork work = sum_;
  work.front_end_tokens = shape_.padded_front_end ? units_ * sum_.longest : sum_.tokens;
  return work;
}

Unit make_unit(const std::vector<PhaseShape>& shapes, std::size_t phase, std::uint64_t layers, bool first, bool last) {
  const PhaseShape& shape = shapes[phase];
  const auto per_layer = static_cast<double>(layer_parameters(shape.transformer));
  return {phase, layers, first, last,
          static_cast<double>(layers) * per_layer + (first ? shape.first_parameters : 0) +
              (last ? shape.last_parameters : 0)};
}

std::vector<Unit> fsdp_units(const std::vector<PhaseShape>& shapes, std::uint32_t layers_per_unit) {
  std::vector<Unit> units;
  for (std::size_t phase = 0; phase < shapes.size(); ++phase) {
    const std::uint64_t layers = shapes[phase].transformer.layers;
    for (std::uint64_t layer = 0; layer < layers; layer += layers_per_unit) {
      units.push_back(make_unit(shapes, phase, std::min<std::uint64_t>(layers_per_unit, layers - layer), layer == 0,
                                layer + layers_per_unit >= layers));
    }
  }
  return units;
}

PassSeconds pass_seconds(const PhaseShape& shape, const PhaseWork& work, const Cluster& cluster,
                         const Parallelism& parallelism) {
  const Transformer& t = shape.transformer;
  const Gpu& gpu = cluster.gpu;
  const Software& software = cluster.software;
  const double tensor = parallelism.tensor;
  const double tokens = work.tokens / parallelism.context;  // of one GPU
  const auto layers = static_cast<double>(t.layers);
  const Repeated again = repeated(software, parallelism.recompute);

  const ProductSeconds products = layer_products(t, tokens, cluster, parallelism.tensor);
  const double heads = split_evenly(t.heads, parallelism.tensor) / static_cast<double>(t.heads);
  const double attention_share = heads / parallelism.context / layers;
  const double attention_forward = work.attention_forward_seconds * attention_share;
  const double attention_backward = work.attention_backward_seconds * attention_share;
  ElementwiseElements elements = elementwise_elements(t);
  if (parallelism.trainable == Trainable::adapters) elements.inner += adapter_elements(t);
  const double elementwise = tokens * activation_bytes * software.elementwise_traffic / gpu.memory_bandwidth *
                             (elements.residual / (software.sequence_parallel ? tensor : 1) + elements.inner / tensor);
  const double launches = gpu.kernels_per_layer * gpu.launch_seconds;

  // Two all-gathers and two reduce-scatters (or two all-reduces) of the layer's activations, each way.
  const double layer_bytes = tokens * static_cast<double>(t.hidden) * activation_bytes;
  const Group tensor_group = strided_group(parallelism.tensor, 1, cluster.gpus_per_node);
  const double tensor_exposed =
      4 * ring_seconds(layer_bytes, tensor_group, cluster.links) * (1 - software.tensor_overlap);
  // Keys and values go round the context-parallel group while attention runs; their gradients too on the way back.
  const Group context_group = strided_group(parallelism.context, parallelism.tensor, cluster.gpus_per_node);
  const double key_value_bytes = work.tokens * 2 * split_evenly(t.kv_heads, parallelism.tensor) *
                                 static_cast<double>(t.head_dim) * activation_bytes;
  double context_ring = t.causal ? ring_seconds(key_value_bytes, context_group, cluster.links) : 0;
  // Pieces of a split sample may be on any ranks: their keys and values come over the network.
  if (work.ring_tokens > 0) {
    context_ring += send_seconds(key_value_bytes / work.tokens * work.ring_tokens, Link::inter_node, cluster.links);
  }
  const double context_forward = std::max(0.0, context_ring - attention_forward);
  const double context_backward = std::max(0.0, 2 * context_ring - attention_backward);

  PassSeconds pass;
  pass.layer_forward =
      std::max(launches, products.forward + attention_forward + elementwise) + tensor_exposed + context_forward;
  const double weight_gradient = parallelism.trainable == Trainable::full ? products.weight_gradient : 0;
  const double backward = products.input_gradient + weight_gradient + attention_backward + 2 * elementwise;
  double recompute =
      again.gemm * products.forward + again.attention * attention_forward + again.elementwise * elementwise;
  if (again.gemm == 1) recompute = pass.layer_forward;
  pass.layer_backward = std::max(2 * launches, backward) + tensor_exposed + context_backward + recompute;

  const EndSeconds first = end_seconds(shape.first_products, work, cluster, parallelism);
  EndSeconds last = end_seconds(shape.last_products, work, cluster, parallelism);
  const double logits = tokens * std::ceil(static_cast<double>(t.vocab) / tensor);
  const double loss = logits * software.loss_traffic_bytes / gpu.memory_bandwidth / 2;
  pass.first_forward = first.forward;
  pass.first_backward = first.backward;
  pass.last_forward = last.forward + loss;
  pass.last_backward = last.backward + loss;
  return pass;
}

namespace {

struct ForwardFlops {
  double layers = 0;
  double attention = 0;
  double ends = 0;
};

ForwardFlops forward_flops(const PhaseShape& shape, double tokens, double pairs, double outputs) {
  const Transformer& t = shape.transformer;
  return {tokens * static_cast<double>(t.layers) * 2.0 * static_cast<double>(layer_matrix_parameters(t)),
          pairs * static_cast<double>(attention_flops_per_pair(t)),
          tokens * (shape.front_end_flops_per_token + shape.head_flops_per_token) +
              outputs * shape.connector_flops_per_output};
}

}  // namespace

double model_flops(const PhaseShape& shape, const PhaseWork& work) {
  const ForwardFlops forward =
      forward_flops(shape, work.tokens - work.padding_tokens, work.attention_pairs - work.padding_pairs, work.outputs);
  return 3 * (forward.layers + forward.ends + forward.attention);
}

double hardware_flops(const PhaseShape& shape, const PhaseWork& work, const Software& software, Recompute recompute) {
  const ForwardFlops forward = forward_flops(shape, work.tokens, work.attention_pairs, work.outputs);
  const Repeated again = repeated(software, recompute);
  return 3 * (forward.layers + forward.ends + forward.attention) + again.gemm * forward.layers +
         again.attention * forward.attention;
}

}  // namespace orch::sim
