// Compute of one instance's batch in one phase, from the model's shape and the cluster's achieved rates.
//
// Forward time of one layer = matrix products + attention + memory-bound operators, at least the time to launch its
// kernels, and what tensor- and context-parallel communication leaves exposed. A backward layer does two products for
// each forward one, attention 2.5 times, and recomputes what the run does not keep.
// Units: seconds, bytes, FLOPs; of one GPU of the instance. docs/simulator.md has the equations.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orchmllm/model/architecture.hpp"
#include "orchmllm/orchestrate/step_plan.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/kernels.hpp"
#include "orchmllm/sim/parallelism.hpp"

namespace orch::sim {

/// A product outside of the layers: a front end, a connector, an output head.
struct EndProduct {
  enum class Rows : std::uint8_t { tokens, front_end_tokens, outputs };
  Rows rows = Rows::tokens;
  double rows_scale = 1;
  double n = 0;
  double k = 0;
  bool split = false;          ///< its columns are split among tensor-parallel ranks
  bool input_gradient = true;  ///< false: nothing before it is trained
};

/// One phase of a model as the simulator sees it: an encoder with its connector, or the LLM with its head.
struct PhaseShape {
  std::string name;
  Transformer transformer;
  std::uint64_t attention_span = 0;
  bool padded_front_end = false;
  double front_end_flops_per_token = 0;
  double connector_flops_per_output = 0;  ///< per token that leaves an encoder
  double head_flops_per_token = 0;        ///< LLM
  double first_parameters = 0;            ///< with the first layer: front end or embedding
  double last_parameters = 0;             ///< with the last layer: connector or output head
  std::vector<EndProduct> first_products;
  std::vector<EndProduct> last_products;
};

/// Encoders in the model's order, then the LLM.
[[nodiscard]] std::vector<PhaseShape> phase_shapes(const Mllm& model);

/// What an instance's batch, or micro-batch, in one phase amounts to.
struct PhaseWork {
  double tokens = 0;            ///< that are processed
  double padding_tokens = 0;    ///< of those, what fills up shorter sequences
  double front_end_tokens = 0;  ///< units · longest unit where a front end is padded, else tokens
  double outputs = 0;           ///< tokens that leave an encoder
  double attention_pairs = 0;
  double padding_pairs = 0;               ///< of those, of padding
  double longest = 0;                     ///< tokens of the longest unit
  double ring_tokens = 0;                 ///< whose keys and values come from the other ranks of split samples
  double attention_forward_seconds = 0;   ///< all layers and heads, on one GPU
  double attention_backward_seconds = 0;  ///< without recomputation
};

/// Adds up units of a phase.
class WorkSum {
 public:
  WorkSum(const PhaseShape& shape, const Gpu& gpu, const Parallelism& parallelism);
  /// A unit, processed as one of `padded` tokens if that is longer.
  void add(std::uint64_t length, std::uint64_t outputs, std::uint64_t padded = 0);
  /// One of `pieces` equal parts of a unit of `length` tokens, spread over as many ranks.
  void add_piece(std::uint64_t length, std::uint32_t pieces);
  [[nodiscard]] PhaseWork work() const;

 private:
  const PhaseShape& shape_;
  const AttentionRate& rate_;
  double pair_flops_ = 0;  ///< with what a kernel's head size pads, at the software's efficiency
  double shrink_ = 1;      ///< context-parallel GPUs work on so much shorter pieces of a sequence
  double units_ = 0;
  PhaseWork sum_;
};

/// Layers that are gathered together, or that stand on a pipeline stage together.
struct Unit {
  std::size_t phase = 0;
  std::uint64_t layers = 0;
  bool first = false;  ///< of its phase: front end or embedding
  bool last = false;   ///< of its phase: connector or head
  double parameters = 0;
};

[[nodiscard]] Unit make_unit(const std::vector<PhaseShape>& shapes, std::size_t phase, std::uint64_t layers, bool first,
                             bool last);
/// All units in forward order.
[[nodiscard]] std::vector<Unit> fsdp_units(const std::vector<PhaseShape>& shapes, std::uint32_t layers_per_unit);

/// Passes of one batch through the parts of a phase. Recomputation is part of backward.
struct PassSeconds {
  double layer_forward = 0;
  double layer_backward = 0;
  double first_forward = 0;
  double first_backward = 0;
  double last_forward = 0;
  double last_backward = 0;

  [[nodiscard]] double forward(const Unit& unit) const {
    return static_cast<double>(unit.layers) * layer_forward + (unit.first ? first_forward : 0) +
           (unit.last ? last_forward : 0);
  }
  [[nodiscard]] double backward(const Unit& unit) const {
    return static_cast<double>(unit.layers) * layer_backward + (unit.first ? first_backward : 0) +
           (unit.last ? last_backward : 0);
  }
};

[[nodiscard]] PassSeconds pass_seconds(const PhaseShape& shape, const PhaseWork& work, const Cluster& cluster,
                                       const Parallelism& parallelism);

/// Model FLOPs of forward and backward, without recomputation and padding: what MFU counts. Adapters train as all
/// weights would.
[[nodiscard]] double model_flops(const PhaseShape& shape, const PhaseWork& work);
/// FLOPs with recomputation and padding: what HFU counts.
[[nodiscard]] double hardware_flops(const PhaseShape& shape, const PhaseWork& work, const Software& software,
                                    Recompute recompute);

}  // namespace orch::sim
