#include "orchmllm/sim/kernels.hpp"

#include <algorithm>
#include <cmath>

namespace orch::sim {

namespace {

/// Share of the multiprocessors' time that computes wanted elements, for the best tile.
double tile_share(double m, double n, const Gpu& gpu) {
  double best = gpu.tiles.empty() ? 1 : 0;
  for (const Tile& tile : gpu.tiles) {
    const double tiles = std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    const double waves = std::ceil(tiles / gpu.multiprocessors);
    best = std::max(best, tile.efficiency * m * n / (waves * gpu.multiprocessors * tile.rows * tile.columns));
  }
  return best;
}

}  // namespace

double gemm_seconds(double m, double n, double k, Precision precision, const Gpu& gpu) {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  const bool fp8 = precision == Precision::fp8;
  const double sustained = fp8 ? gpu.gemm_sustained_fp8 : gpu.gemm_sustained;
  const double rate =
      gpu.peak(precision) * sustained * tile_share(m, n, gpu) * k / (k + gpu.gemm_half_depth * (fp8 ? 2 : 1));
  const double operand_bytes = fp8 ? 1 : activation_bytes;
  const double bytes = operand_bytes * (m * k + k * n) + activation_bytes * m * n;
  return std::max(2 * m * n * k / rate, bytes / gpu.memory_bandwidth);
}

ProductSeconds product_seconds(double m, double n, double k, Precision precision, const Gpu& gpu) {
  return {gemm_seconds(m, n, k, precision, gpu), gemm_seconds(m, k, n, precision, gpu),
          gemm_seconds(k, n, m, precision, gpu)};
}

std::uint64_t kernel_head_dim(const Gpu& gpu, std::uint64_t head_dim) {
  const auto found = std::lower_bound(gpu.attention_head_dims.begin(), gpu.attention_head_dims.end(), head_dim);
  return found != gpu.attention_head_dims.end() ? *found : head_dim;
}

const AttentionRate& attention_rate(const Gpu& gpu, std::uint64_t head_dim, bool causal) {
  const AttentionRate* best = nullptr;
  for (const AttentionRate& rate : gpu.attention) {
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

}  // namespace orch::sim
