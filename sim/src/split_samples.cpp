#include "orchmllm/sim/split_samples.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "orchmllm/base/error.hpp"
#include "orchmllm/cost/shape.hpp"
#include "orchmllm/model/encoder_graph.hpp"

namespace orch::sim {

namespace {

/// Tokens of a sample that costs at most `cost`, as many as possible.
std::uint32_t length_of_cost(const PackedCost& cost_of, Cost cost) {
  const auto alpha = static_cast<double>(cost_of.alpha);
  const auto beta = static_cast<double>(cost_of.beta);
  const double room = static_cast<double>(cost) - static_cast<double>(cost_of.gamma);
  if (room <= 0) return 1;
  const double length = beta > 0 ? (std::sqrt(alpha * alpha + 4 * beta * room) - alpha) / (2 * beta) : room / alpha;
  return static_cast<std::uint32_t>(std::clamp(length, 1.0, 4e9));
}

/// The units of a sample that begin in part `piece` of `pieces` of its sequence.
void append_units(EncoderLengths& encoder, std::uint32_t sample, double part, std::uint32_t piece,
                  std::uint32_t pieces) {
  std::uint32_t outputs = 0;
  for (std::uint64_t unit = encoder.first[sample]; unit < encoder.first[sample + 1]; ++unit) {
    const auto place = static_cast<std::uint32_t>(encoder.unit_position[unit] / part);
    if (std::min(place, pieces - 1) != piece) continue;
    encoder.unit_length.push_back(encoder.unit_length[unit]);
    encoder.unit_llm_length.push_back(encoder.unit_llm_length[unit]);
    encoder.unit_position.push_back(0);
    outputs += encoder.unit_llm_length[unit];
  }
  encoder.first.push_back(encoder.unit_length.size());
  encoder.llm_length.push_back(outputs);
}

}  // namespace

SplitLengths split_samples(const Mllm& model, const PhaseLengths& lengths, std::uint32_t batch,
                           std::uint32_t ranks_per_node) {
  for (const Encoder& encoder : model.encoders) {
    if (encoder.feeds != std::vector<std::string>{"llm"}) {
      throw InvalidInput("samples of a model with encoders that feed encoders cannot be split: " + encoder.phase);
    }
  }
  SplitLengths split{lengths, {}, {}, {}, static_cast<std::uint32_t>(lengths.samples())};
  const PackedCost cost_of = llm_cost(model);
  double sum = 0;
  for (const std::uint32_t length : lengths.llm_length) sum += static_cast<double>(cost_of(length));
  const double fair = sum / split.whole * batch;
  PhaseLengths& all = split.lengths;
  for (std::uint32_t sample = 0; sample < split.whole; ++sample) {
    const std::uint32_t length = lengths.llm_length[sample];
    const Cost cost = cost_of(length);
    const double shares = std::ceil(static_cast<double>(cost) / fair);
    const auto pieces = static_cast<std::uint32_t>(std::min<double>(
        std::bit_ceil(static_cast<std::uint32_t>(std::clamp(shares, 1.0, 1e6))), std::bit_floor(ranks_per_node)));
    split.count.push_back(pieces);
    split.first.push_back(pieces == 1 ? sample : static_cast<std::uint32_t>(all.samples()));
    if (pieces == 1) continue;
    const std::uint32_t planned = length_of_cost(cost_of, cost / pieces);
    for (std::uint32_t piece = 0; piece < pieces; ++piece) {
      std::uint32_t outputs = 0;
      for (EncoderLengths& encoder : all.encoders) {
        append_units(encoder, sample, static_cast<double>(length) / pieces, piece, pieces);
        outputs += encoder.llm_length.back();
      }
      const std::uint32_t text = planned > outputs ? planned - outputs : 0;
      all.text.push_back(text);
      all.supervised.push_back(text);
      all.llm_length.push_back(text + outputs);
      split.pieces.push_back({length, pieces});
    }
  }
  return split;
}

SplitBatch in_pieces(const SplitLengths& split, const std::vector<std::uint32_t>& samples,
                     const std::vector<std::uint32_t>& home) {
  SplitBatch batch;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (std::uint32_t piece = 0; piece < split.count[samples[i]]; ++piece) {
      batch.samples.push_back(split.first[samples[i]] + piece);
      batch.home.push_back(home[i]);
    }
  }
  return batch;
}

}  // namespace orch::sim
