#include "orchmllm/sim/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

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
constexpr double mib = 1024.0 * 1024.0;
constexpr double gib = 1024.0 * mib;
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

}  // namespace

namespace {

/// Keys of `over` replace those of `base`, table by table; lists are replaced whole.
void merge(toml::table& base, toml::table& over) {
  for (auto&& [key, node] : over) {
    toml::table* below = base[key].as_table();
    if (below != nullptr && node.is_table()) {
      merge(*below, *node.as_table());
    } else {
      base.insert_or_assign(key, std::move(node));  // moved, not copied: a copy would forget its line
    }
  }
}

/// The file that one extends, first looked for beside it; none if it extends nothing.
std::optional<std::string> extended_file(const TomlFile& file) {
  TomlSection root = file.root();
  if (!root.has("extends")) return {};
  const std::string name = root.text("extends");
  const auto beside = std::filesystem::path(file.path).parent_path() / (name + ".toml");
  std::error_code ignored;
  return std::filesystem::is_regular_file(beside, ignored) ? beside.string() : find_file("clusters", name);
}

/// A file and all that it extends, in this order.
std::vector<TomlFile> read_chain(const std::string& path) {
  constexpr std::size_t longest = 8;
  std::vector<TomlFile> chain;
  chain.emplace_back(path);
  while (const auto next = extended_file(chain.back())) {
    if (chain.size() > longest) {
      chain.front().root().fail("extends", "goes round in a circle, or is more than 8 files deep");
    }
    chain.emplace_back(*next);
  }
  return chain;
}

/// A file with all that it extends.
TomlFile read_extended(const std::string& path) {
  std::vector<TomlFile> chain = read_chain(path);
  TomlFile merged = std::move(chain.back());
  for (std::size_t i = chain.size() - 1; i-- > 0;) merge(merged.table, chain[i].table);
  merged.table.erase("extends");
  merged.path = path;
  return merged;
}

void add_settings(const toml::node& node, const std::string& path, std::map<std::string, std::string>& settings) {
  const std::string prefix = path.empty() ? path : path + ".";
  if (const toml::table* table = node.as_table()) {
    for (auto&& [key, value] : *table) add_settings(value, prefix + std::string(key.str()), settings);
  } else if (const toml::array* list = node.as_array()) {
    for (std::size_t i = 0; i < list->size(); ++i) add_settings((*list)[i], prefix + std::to_string(i), settings);
  } else if (node.is_number()) {
    settings[path] = fmt::format("{}", node.value<double>().value());
  } else {
    settings[path] = node.is_boolean() ? fmt::format("{}", node.value<bool>().value()) : node.value_or(std::string());
  }
}

std::vector<Tile> read_tiles(TomlSection& section) {
  std::vector<Tile> tiles;
  for (TomlSection& tile : section.sections("tiles")) {
    tiles.push_back(
        {tile.number("rows", 0.5, 65536), tile.number("columns", 0.5, 65536), tile.number("efficiency", 1e-3, 1)});
    tile.done();
  }
  return tiles;
}

void read_gpu(TomlSection gpu, Gpu& g) {
  g.peak_flops = tera * gpu.number("peak_tflops", 1e-9, any);
  g.peak_flops_fp8 = tera * gpu.number("peak_tflops_fp8", 0, any, 0);
  g.memory_bytes = gib * gpu.number("memory_gib", 1e-9, any);
  g.memory_bandwidth = giga * gpu.number("memory_bandwidth_gbytes", 1e-9, any);
  g.multiprocessors = gpu.number("multiprocessors", 0.5, 65536, 1);
  g.launch_seconds = micro * gpu.number("launch_us", 0, any);
  g.kernels_per_layer = gpu.number("kernels_per_layer", 0, any);
  TomlSection gemm = gpu.section("gemm");
  g.gemm_sustained = gemm.number("sustained", 1e-6, 1);
  g.gemm_sustained_fp8 = gemm.number("sustained_fp8", 1e-6, 1, g.gemm_sustained);
  g.gemm_half_depth = gemm.number("half_depth", 0, 1e6, 0);
  g.tiles = read_tiles(gemm);
  gemm.done();
  for (const double dim : gpu.numbers("attention_head_dims")) {
    if (!(dim >= 1 && dim <= 65536)) gpu.fail("attention_head_dims", "must hold head sizes from 1 to 65536");
    g.attention_head_dims.push_back(static_cast<std::uint64_t>(dim));
  }
  std::sort(g.attention_head_dims.begin(), g.attention_head_dims.end());
  g.attention_scale = gpu.number("attention_scale", 1e-3, 10, 1);
  for (TomlSection& section : gpu.sections("attention")) {
    AttentionRate rate;
    rate.head_dim = section.integer("head_dim", 1, 65536);
    rate.causal = section.boolean("causal", false);
    rate.forward_flops = read_curve(section, "length", "forward_tflops", tera);
    rate.backward_flops = read_curve(section, "length", "backward_tflops", tera);
    section.done();
    g.attention.push_back(std::move(rate));
  }
  const auto has = [&](bool causal) {
    return std::any_of(g.attention.begin(), g.attention.end(), [&](const auto& rate) { return rate.causal == causal; });
  };
  if (!has(true) || !has(false)) gpu.fail("attention", "needs at least one causal and one non-causal entry");
  gpu.done();
}

/// All keys are absent, or the switches are described at least by how many nodes they serve.
void read_leaves(TomlSection& links, Links& l, std::uint32_t gpus_per_node) {
  for (const char* key : {"rails", "oversubscription"}) {
    if (links.has(key) && !links.has("nodes_per_leaf")) links.fail(key, "needs nodes_per_leaf beside it");
  }
  if (!links.has("nodes_per_leaf")) return;
  l.nodes_per_leaf = links.integer32("nodes_per_leaf", 1, 1U << 20U);
  if (links.has("rails")) l.rails = links.integer32("rails", 1, gpus_per_node);
  l.oversubscription = links.number("oversubscription", 0, any, 1);
  if (l.oversubscription < 1) links.fail("oversubscription", "must be at least 1, a non-blocking fabric");
}

void read_links(TomlSection links, Links& l, std::uint32_t gpus_per_node) {
  l.nvlink_bandwidth = giga * links.number("nvlink_gbytes", 1e-9, any);
  l.nvlink_all_reduce_bandwidth = giga * links.number("nvlink_all_reduce_gbytes", 0, any, 0);
  l.nic_bandwidth = giga * links.number("nic_gbytes", 1e-9, any);
  if (links.has("nics_per_node")) l.nics_per_node = links.integer32("nics_per_node", 1, gpus_per_node);
  if (links.has("nvlink_message_bytes"))
    l.nvlink_size_share = read_curve(links, "nvlink_message_bytes", "nvlink_share", 1);
  if (links.has("nic_message_bytes")) l.nic_size_share = read_curve(links, "nic_message_bytes", "nic_share", 1);
  l.collective_base_seconds = micro * links.number("collective_base_us", 0, any);
  l.nvlink_hop_seconds = micro * links.number("nvlink_hop_us", 0, any);
  l.network_hop_seconds = micro * links.number("network_hop_us", 0, any);
  l.exchange_base_seconds = micro * links.number("exchange_base_us", 0, any);
  l.exchange_peer_seconds = micro * links.number("exchange_peer_us", 0, any);
  read_leaves(links, l, gpus_per_node);
  links.done();
}

void read_software(TomlSection software, Software& s) {
  s.layers_per_unit = software.integer32("layers_per_unit", 1, 65536);
  s.parameter_bytes = software.number("parameter_bytes", 0, 64);
  s.gradient_bytes = software.number("gradient_bytes", 0, 64);
  s.reduced_gradient_bytes = software.number("reduced_gradient_bytes", 0, 64, s.gradient_bytes);
  s.master_bytes = software.number("master_bytes", 0, 64);
  s.moment_bytes = software.number("moment_bytes", 0, 64);
  s.optimizer_traffic_bytes = software.number("optimizer_traffic_bytes", 0, 1024);
  s.elementwise_traffic = software.number("elementwise_traffic", 0, 100, 1);
  s.compiled_elementwise_traffic = software.number("compiled_elementwise_traffic", 0, 100, s.elementwise_traffic);
  s.loss_traffic_bytes = software.number("loss_traffic_bytes", 0, 1024, 0);
  s.tensor_overlap = software.number("tensor_overlap", 0, 1, 0);
  s.collective_interference = software.number("collective_interference", 0, 10, 0);
  s.sequence_parallel = software.boolean("sequence_parallel", true);
  s.reduce_every_micro_batch = software.boolean("reduce_every_micro_batch", false);
  s.flash_attention = software.boolean("flash_attention", true);
  s.dropout = software.boolean("dropout", false);
  s.selective_gemm = software.number("selective_gemm", 0, 1, 0);
  s.selective_elementwise = software.number("selective_elementwise", 0, 1, 0);
  s.loss_chunk_tokens = software.integer("loss_chunk_tokens", 1, 1ULL << 40U);
  s.reserved_bytes = gib * software.number("reserved_gib", 0, any);
  s.channel_buffer_bytes = mib * software.number("channel_buffer_mib", 0, any, 0);
  s.fragmentation = software.number("fragmentation", 0, 1);
  s.plan_seconds_per_sample = micro * software.number("plan_us_per_sample", 0, any, 0);
  s.step_overhead_seconds = micro * software.number("step_overhead_us", 0, any, 0);
  software.done();
}

}  // namespace

Cluster load_cluster(const std::string& name) {
  const TomlFile file = read_extended(find_file("clusters", name));
  TomlSection root = file.root();
  Cluster c;
  c.name = root.text("name");
  c.gpus_per_node = root.integer32("gpus_per_node", 1, 1U << 20U);
  c.gpu_hour_cost = root.number("gpu_hour_cost", 0, any, 0);
  c.currency = root.has("currency") ? root.text("currency") : "";
  read_gpu(root.section("gpu"), c.gpu);
  read_links(root.section("links"), c.links, c.gpus_per_node);
  read_software(root.section("software"), c.software);
  root.done();
  return c;
}

std::vector<std::string> cluster_files(const std::string& name) {
  std::vector<std::string> paths;
  for (const TomlFile& file : read_chain(find_file("clusters", name))) paths.push_back(file.path);
  return paths;
}

std::map<std::string, std::string> cluster_settings(const std::string& name) {
  std::map<std::string, std::string> settings;
  add_settings(read_extended(find_file("clusters", name)).table, {}, settings);
  return settings;
}

}  // namespace orch::sim
