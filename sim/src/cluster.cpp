#include "orchmllm/sim/cluster.hpp"

#include <algorithm>
#include <cmath>

#include "orchmllm/base/error.hpp"
#include "toml_reader.hpp"

namespace orch::sim {

double Curve::at(double x_value) const {
  if (x_value <= x.front()) return y.front();
  if (x_value >= x.back()) return y.back();
  const auto right = static_cast<std::size_t>(std::upper_bound(x.begin(), x.end(), x_value) - x.begin());
  const double share = std::log2(x_value / x[right - 1]) / std::log2(x[right] / x[right - 1]);
  return y[right - 1] + share * (y[right] - y[right - 1]);
}

namespace {

constexpr double tera = 1e12;
constexpr double giga = 1e9;
constexpr double micro = 1e-6;
constexpr double gib = 1024.0 * 1024.0 * 1024.0;
constexpr double any = 1e18;

Curve read_curve(TomlSection& section, const char* x_key, const char* y_key, double unit) {
  Curve curve{section.numbers(x_key), section.numbers(y_key)};
  if (curve.x.size() != curve.y.size()) section.fail(y_key, std::string("must have as many entries as ") + x_key);
  for (std::size_t i = 0; i < curve.x.size(); ++i) {
    if (curve.x[i] <= 0 || (i > 0 && curve.x[i] <= curve.x[i - 1]))
      section.fail(x_key, "must be positive and ascending");
    if (curve.y[i] <= 0) section.fail(y_key, "must be positive");
    curve.y[i] *= unit;
  }
  return curve;
}

/// All keys are absent, or the switches are described at least by how many nodes they serve.
void read_leaves(TomlSection& links, Cluster& c) {
  for (const char* key : {"rails", "oversubscription"}) {
    if (links.has(key) && !links.has("nodes_per_leaf")) links.fail(key, "needs nodes_per_leaf beside it");
  }
  if (!links.has("nodes_per_leaf")) return;
  c.nodes_per_leaf = links.integer32("nodes_per_leaf", 1, 1U << 20U);
  if (links.has("rails")) c.rails = links.integer32("rails", 1, c.gpus_per_node);
  c.oversubscription = links.number("oversubscription", 0, any, 1);
  if (c.oversubscription < 1) links.fail("oversubscription", "must be at least 1, a non-blocking fabric");
}

}  // namespace

Cluster load_cluster(const std::string& name) {
  const TomlFile file(find_file("clusters", name));
  TomlSection root = file.root();
  Cluster c;
  c.name = root.text("name");
  c.gpus_per_node = root.integer32("gpus_per_node", 1, 1U << 20U);

  TomlSection gpu = root.section("gpu");
  c.peak_flops = tera * gpu.number("peak_tflops", 1e-9, any);
  c.memory_bytes = gib * gpu.number("memory_gib", 1e-9, any);
  c.memory_bandwidth = giga * gpu.number("memory_bandwidth_gbytes", 1e-9, any);
  c.gemm_flops = read_curve(gpu, "gemm_width", "gemm_tflops", tera);
  c.launch_seconds = micro * gpu.number("launch_us", 0, any);
  c.kernels_per_layer = gpu.number("kernels_per_layer", 0, any);
  for (const double dim : gpu.numbers("attention_head_dims")) {
    if (!(dim >= 1 && dim <= 65536)) gpu.fail("attention_head_dims", "must hold head sizes from 1 to 65536");
    c.attention_head_dims.push_back(static_cast<std::uint64_t>(dim));
  }
  std::sort(c.attention_head_dims.begin(), c.attention_head_dims.end());
  for (TomlSection& section : gpu.sections("attention")) {
    AttentionRate rate;
    rate.head_dim = section.integer("head_dim", 1, 65536);
    rate.causal = section.boolean("causal", false);
    rate.forward_flops = read_curve(section, "length", "forward_tflops", tera);
    rate.backward_flops = read_curve(section, "length", "backward_tflops", tera);
    section.done();
    c.attention.push_back(std::move(rate));
  }
  const auto has = [&](bool causal) {
    return std::any_of(c.attention.begin(), c.attention.end(), [&](const auto& rate) { return rate.causal == causal; });
  };
  if (!has(true) || !has(false)) gpu.fail("attention", "needs at least one causal and one non-causal entry");
  gpu.done();

  TomlSection links = root.section("links");
  c.nvlink_bandwidth = giga * links.number("nvlink_gbytes", 1e-9, any);
  c.nic_bandwidth = giga * links.number("nic_gbytes", 1e-9, any);
  c.collective_base_seconds = micro * links.number("collective_base_us", 0, any);
  c.nvlink_hop_seconds = micro * links.number("nvlink_hop_us", 0, any);
  c.network_hop_seconds = micro * links.number("network_hop_us", 0, any);
  c.exchange_base_seconds = micro * links.number("exchange_base_us", 0, any);
  c.exchange_peer_seconds = micro * links.number("exchange_peer_us", 0, any);
  read_leaves(links, c);
  links.done();

  TomlSection software = root.section("software");
  c.layers_per_unit = software.integer32("layers_per_unit", 1, 65536);
  c.parameter_bytes = software.number("parameter_bytes", 0, 64);
  c.gradient_bytes = software.number("gradient_bytes", 0, 64);
  c.state_bytes = software.number("state_bytes", 0, 1024);
  c.optimizer_traffic_bytes = software.number("optimizer_traffic_bytes", 0, 1024);
  c.loss_chunk_tokens = software.integer("loss_chunk_tokens", 1, 1ULL << 40U);
  c.reserved_bytes = gib * software.number("reserved_gib", 0, any);
  c.fragmentation = software.number("fragmentation", 0, 1);
  software.done();
  root.done();
  return c;
}

}  // namespace orch::sim
