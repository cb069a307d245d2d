// Compute for realism: matrix products and attention of as many operations as a phase asks for, scaled down by a stated
// factor.
//
// A rank's operations in a phase follow from the model's shape and the lengths of its items. Products are blocks of
// rows by one 128 × 128 matrix, twice as many backward. Attention is softmax(Q Kᵀ) V of one head of 64 over 128 tokens,
// forward 2 products a query row, backward 5 (P once more, then the gradients of V, P, Q and K). Both in single
// precision (Eigen, or a plain loop where it is absent), rounded to whole rows of 32,768 operations forward.
// Units: floating-point operations, a multiply-add is two. Complexity: as asked for.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <variant>
#include <vector>

#include "orchmllm/model/flops.hpp"
#include "orchmllm/orchestrate/step_plan.hpp"

#ifdef ORCHMLLM_HAVE_EIGEN
#include <Eigen/Core>
#endif

namespace orch::runtime {

/// Forward operations of one phase on one rank.
struct PhaseFlops {
  double products = 0;
  double attention = 0;

  [[nodiscard]] double total() const { return products + attention; }
};

/// phase → forward operations of a rank's items.
[[nodiscard]] inline std::vector<PhaseFlops> phase_flops(const Mllm& model, const StepPlan& plan, std::uint32_t rank) {
  std::vector<PhaseFlops> flops;
  for (std::size_t p = 0; p < plan.phases.size(); ++p) {
    const PhasePlan& phase = plan.phases[p];
    const bool llm = p + 1 == plan.phases.size();
    const Transformer& transformer = llm ? model.llm : model.encoders[p].transformer;
    const std::uint64_t span = llm ? 0 : attention_span(model.encoders[p].rule);
    double tokens = 0;
    double pairs = 0;
    double outputs = 0;
    double longest = 0;
    double units = 0;
    for (const std::uint32_t item : phase.layout.items(rank)) {
      const double length = phase.length[item];
      tokens += length;
      pairs += attention_pairs(phase.length[item], span);
      outputs += llm ? 0 : phase.output[item];
      longest = std::max(longest, length);
      units += length > 0 ? 1 : 0;
    }
    PhaseFlops sum{static_cast<double>(linear_flops_per_token(transformer)) * tokens,
                   static_cast<double>(attention_flops_per_pair(transformer)) * pairs};
    if (!llm) {
      const Encoder& encoder = model.encoders[p];
      const bool padded = std::holds_alternative<AudioFrames>(encoder.rule);
      sum.products += static_cast<double>(front_end_flops_per_token(encoder)) * (padded ? units * longest : tokens);
      sum.products += static_cast<double>(connector_flops_per_token(encoder.connector)) * outputs;
    }
    flops.push_back(sum);
  }
  return flops;
}

/// phase → forward operations of a rank's items, products and attention together.
[[nodiscard]] inline std::vector<double> forward_flops(const Mllm& model, const StepPlan& plan, std::uint32_t rank) {
  std::vector<double> flops;
  for (const PhaseFlops& phase : phase_flops(model, plan, rank)) flops.push_back(phase.total());
  return flops;
}

namespace detail {

/// A matrix of rows that follow each other, or the transpose of one.
struct Operand {
  const float* data = nullptr;
  bool transposed = false;
};

/// c (m × n) = a (m × k) · b (k × n), or c += that.
inline void multiply(Operand a, Operand b, float* c, std::size_t m, std::size_t n, std::size_t k, bool add = false) {
#ifdef ORCHMLLM_HAVE_EIGEN
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto map = [](const float* data, std::size_t rows, std::size_t columns) {
    return Eigen::Map<const Matrix>(data, static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(columns));
  };
  Eigen::Map<Matrix> result(c, static_cast<Eigen::Index>(m), static_cast<Eigen::Index>(n));
  const auto store = [&](const auto& product) {
    if (add) {
      result.noalias() += product;
    } else {
      result.noalias() = product;
    }
  };
  if (a.transposed) {
    store(map(a.data, k, m).transpose() * map(b.data, k, n));  // no load needs both transposed
  } else if (b.transposed) {
    store(map(a.data, m, k) * map(b.data, n, k).transpose());
  } else {
    store(map(a.data, m, k) * map(b.data, k, n));
  }
#else
  for (std::size_t i = 0; i < m; ++i) {
    float* out = c + i * n;
    if (!add) std::fill_n(out, n, 0.0F);
    for (std::size_t l = 0; l < k; ++l) {
      const float factor = a.transposed ? a.data[l * m + i] : a.data[i * k + l];
      for (std::size_t j = 0; j < n; ++j) out[j] += factor * (b.transposed ? b.data[j * k + l] : b.data[l * n + j]);
    }
  }
#endif
}

}  // namespace detail

/// Products of blocks of rows with one square matrix.
class Products {
 public:
  static constexpr std::size_t rows = 128;

  /// `width`: of the matrix, the inner dimension of the products.
  explicit Products(std::size_t width = 128)
      : width_(width),
        weights_(width * width, 1.0F / static_cast<float>(width)),
        input_(rows * width, 1.0F),
        output_(rows * width, 0.0F) {}

  void run(double flops) {
    const double row_flops = 2.0 * static_cast<double>(width_ * width_);
    for (auto left = std::llround(flops / row_flops); left > 0; left -= rows) {
      const auto count = static_cast<std::size_t>(std::min<long long>(left, rows));
      detail::multiply({input_.data()}, {weights_.data()}, output_.data(), count, width_, width_);
      std::swap(input_, output_);  // each product needs the one before: none can be left out
    }
  }

 private:
  std::size_t width_;
  std::vector<float> weights_;
  std::vector<float> input_;
  std::vector<float> output_;
};

/// Attention of one head over a number of tokens, in blocks of query rows.
class AttentionLoad {
 public:
  static constexpr std::size_t head_dim = 64;
  static constexpr std::size_t rows = 128;

  /// Causal: a block's queries meet the keys up to their own.
  explicit AttentionLoad(std::size_t length = 128, bool causal = false) : length_(length), causal_(causal) {
    for (std::vector<float>* matrix : {&q_, &k_, &v_, &out_, &d_out_, &d_q_, &d_k_, &d_v_}) {
      matrix->resize(length * head_dim);
      for (std::size_t i = 0; i < matrix->size(); ++i) (*matrix)[i] = static_cast<float>(i % 17) / 64 - 0.125F;
    }
    for (std::vector<float>* matrix : {&p_, &d_p_}) matrix->resize(std::min(rows, length) * length);
  }

  /// Operations of all rows forward, where causal attention counts half of the square.
  [[nodiscard]] double forward_flops() const {
    const auto length = static_cast<double>(length_);
    return (causal_ ? 2.0 : 4.0) * length * length * head_dim;
  }

  /// Forward operations; backward, those of the gradients of as many rows.
  void run(double flops, bool backward) {
    const double row_flops = forward_flops() / static_cast<double>(length_);
    for (auto left = std::llround(flops / row_flops); left > 0;) {
      const std::size_t count = std::min({rows, length_ - next_, static_cast<std::size_t>(left)});
      if (backward) {
        block_backward(next_, count);
      } else {
        block(next_, count);
      }
      next_ = (next_ + count) % length_;
      left -= static_cast<long long>(count);
    }
  }

 private:
  [[nodiscard]] std::size_t keys(std::size_t first, std::size_t count) const {
    return causal_ ? first + count : length_;
  }

  void probabilities(std::size_t first, std::size_t count) {
    const std::size_t n = keys(first, count);
    detail::multiply({q_.data() + first * head_dim}, {k_.data(), true}, p_.data(), count, n, head_dim);
    for (std::size_t i = 0; i < count; ++i) {
      float* row = p_.data() + i * n;
      const std::size_t seen = causal_ ? first + i + 1 : n;
      float most = row[0];
      for (std::size_t j = 1; j < seen; ++j) most = std::max(most, row[j]);
      float sum = 0;
      for (std::size_t j = 0; j < seen; ++j) sum += row[j] = std::exp((row[j] - most) / 8);  // √head_dim
      for (std::size_t j = 0; j < seen; ++j) row[j] /= sum;
      std::fill(row + seen, row + n, 0.0F);
    }
  }

  void block(std::size_t first, std::size_t count) {
    probabilities(first, count);
    detail::multiply({p_.data()}, {v_.data()}, out_.data() + first * head_dim, count, head_dim, keys(first, count));
  }

  void block_backward(std::size_t first, std::size_t count) {
    const std::size_t n = keys(first, count);
    const float* d_out = d_out_.data() + first * head_dim;
    const float* out = out_.data() + first * head_dim;
    probabilities(first, count);
    detail::multiply({p_.data(), true}, {d_out}, d_v_.data(), n, head_dim, count, first > 0);
    detail::multiply({d_out}, {v_.data(), true}, d_p_.data(), count, n, head_dim);
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (std::size_t j = 0; j < head_dim; ++j) sum += d_out[i * head_dim + j] * out[i * head_dim + j];
      for (std::size_t j = 0; j < n; ++j) d_p_[i * n + j] = p_[i * n + j] * (d_p_[i * n + j] - sum) / 8;
    }
    detail::multiply({d_p_.data()}, {k_.data()}, d_q_.data() + first * head_dim, count, head_dim, n);
    detail::multiply({d_p_.data(), true}, {q_.data() + first * head_dim}, d_k_.data(), n, head_dim, count, first > 0);
  }

  std::size_t length_;
  bool causal_;
  std::size_t next_ = 0;  ///< query row
  std::vector<float> q_, k_, v_, out_, d_out_, d_q_, d_k_, d_v_;
  std::vector<float> p_, d_p_;  ///< of one block of query rows
};

/// What a phase asks of a rank, one after the other.
class PhaseLoad {
 public:
  /// `flops` forward; backward twice as many in products, and the gradients of the same attention.
  void run(const PhaseFlops& flops, double scale, bool backward) {
    products_.run(flops.products * scale * (backward ? 2 : 1));
    attention_.run(flops.attention * scale, backward);
  }

 private:
  Products products_;
  AttentionLoad attention_;
};

}  // namespace orch::runtime
