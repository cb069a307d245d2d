#include "coefficients.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include "orchmllm/base/error.hpp"

namespace orch::apps {

const std::vector<Coefficient>& coefficients() {
  using sim::Cluster;
  static const std::vector<Coefficient> known{
      {"gpu.gemm.sustained", 0.2, 1, 1, [](Cluster& c) -> double& { return c.gpu.gemm_sustained; }},
      {"gpu.gemm.sustained_fp8", 0.2, 1, 1, [](Cluster& c) -> double& { return c.gpu.gemm_sustained_fp8; }},
      {"gpu.gemm.half_depth", 1, 4000, 1, [](Cluster& c) -> double& { return c.gpu.gemm_half_depth; }},
      {"gpu.attention_scale", 0.1, 2, 1, [](Cluster& c) -> double& { return c.gpu.attention_scale; }},
      {"gpu.memory_bandwidth_gbytes", 100, 20000, 1e9, [](Cluster& c) -> double& { return c.gpu.memory_bandwidth; }},
      {"links.nvlink_gbytes", 1, 2000, 1e9, [](Cluster& c) -> double& { return c.links.nvlink_bandwidth; }},
      {"links.nic_gbytes", 0.1, 400, 1e9, [](Cluster& c) -> double& { return c.links.nic_bandwidth; }},
      {"software.elementwise_traffic", 0.3, 10, 1,
       [](Cluster& c) -> double& { return c.software.elementwise_traffic; }},
      {"software.compiled_elementwise_traffic", 0.3, 10, 1,
       [](Cluster& c) -> double& { return c.software.compiled_elementwise_traffic; }},
      {"software.loss_traffic_bytes", 0, 200, 1, [](Cluster& c) -> double& { return c.software.loss_traffic_bytes; }},
      {"software.tensor_overlap", 0, 1, 1, [](Cluster& c) -> double& { return c.software.tensor_overlap; }},
      {"software.collective_interference", 0, 3, 1,
       [](Cluster& c) -> double& { return c.software.collective_interference; }},
  };
  return known;
}

const Coefficient& coefficient(const std::string& key) {
  std::string keys;
  for (const Coefficient& candidate : coefficients()) {
    if (candidate.key == key) return candidate;
    keys += (keys.empty() ? "" : ", ") + candidate.key;
  }
  throw InvalidInput(fmt::format("\"{}\" cannot be fitted, expected one of {}", key, keys));
}

namespace {

/// Byte of `text` at a place that toml++ counts from 1.
std::size_t offset(const std::string& text, toml::source_position place) {
  std::size_t at = 0;
  for (toml::source_index line = 1; line < place.line; ++line) at = text.find('\n', at) + 1;
  return at + place.column - 1;
}

}  // namespace

std::string with_value(const std::string& path, const std::string& text, const std::string& key, double value) {
  const toml::table table = toml::parse(text, path);
  const toml::node* node = table.at_path(key).node();
  if (node == nullptr || !node->is_number()) {
    throw InvalidInput(fmt::format("{}: has no number {}: write a first guess there", path, key));
  }
  const std::size_t begin = offset(text, node->source().begin);
  const std::size_t end = offset(text, node->source().end);
  return text.substr(0, begin) + fmt::format("{:.4g}", value) + text.substr(end);
}

}  // namespace orch::apps
