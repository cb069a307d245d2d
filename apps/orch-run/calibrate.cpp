#include "calibrate.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <span>
#include <utility>
#include <vector>

#include "links.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/cost/fit.hpp"
#include "orchmllm/runtime/activity.hpp"
#include "orchmllm/runtime/agreement.hpp"
#include "orchmllm/runtime/compute.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/version.hpp"
#include "run.hpp"
#include "statistics.hpp"

namespace orch::apps {

namespace {

using runtime::MpiTransport;

/// Rate of matrix products by inner dimension.
struct ProductRow {
  std::size_t depth = 0;
  double flops = 0;   ///< per second and rank
  double fitted = 0;  ///< by peak · sustained · depth / (depth + half depth)
};

struct Compute {
  std::vector<ProductRow> products;
  double peak = 0;
  double sustained = 1;
  double half_depth = 0;
  double residual = 0;
  struct Attention {
    bool causal = false;
    std::vector<double> length, forward, backward;  ///< tokens, FLOP/s
  };
  std::array<Attention, 2> attention;
  double copy_bandwidth = 0;  ///< bytes read and written
};

/// All ranks at once, as in a phase. Operations a second of the slowest one.
template <class Load>
double rate(MpiTransport& transport, double seconds, double flops, Load&& load) {
  return flops / repeat(transport, seconds, load, false).seconds;
}

/// 1 / rate = 1 / (peak · sustained) + half depth / (peak · sustained) / depth, relative errors' least squares.
void fit_products(Compute& compute) {
  const auto rows = static_cast<Eigen::Index>(compute.products.size());
  Eigen::MatrixXd a(rows, 2);
  for (Eigen::Index i = 0; i < rows; ++i) {
    const ProductRow& row = compute.products[static_cast<std::size_t>(i)];
    a(i, 0) = row.flops * 1e-12;  // per TFLOP/s: columns of like size
    a(i, 1) = row.flops * 1e-12 / static_cast<double>(row.depth);
  }
  const Eigen::VectorXd ones = Eigen::VectorXd::Ones(rows);
  const Eigen::VectorXd x = orch::detail::non_negative_least_squares(a, ones);
  compute.residual = std::sqrt((a * x - ones).squaredNorm() / static_cast<double>(rows));
  const double limit = x(0) > 0 ? 1e12 / x(0) : 0;
  for (const ProductRow& row : compute.products) compute.peak = std::max(compute.peak, row.flops);
  compute.peak = std::max(compute.peak, limit);
  compute.sustained = limit > 0 ? limit / compute.peak : 1;
  compute.half_depth = x(0) > 0 ? x(1) / x(0) : 0;
  for (ProductRow& row : compute.products) {
    const auto depth = static_cast<double>(row.depth);
    row.fitted = compute.peak * compute.sustained * depth / (depth + compute.half_depth);
  }
}

Compute measure_compute(MpiTransport& transport, double seconds) {
  constexpr std::array<std::size_t, 6> depths{16, 32, 64, 128, 256, 512};
  constexpr std::array<std::size_t, 5> lengths{64, 128, 256, 512, 1024};
  Compute compute;
  const double part = seconds / (depths.size() + 4 * lengths.size() + 2);
  for (const std::size_t depth : depths) {
    runtime::set_activity("calibrating products");
    runtime::Products products(depth);
    const double flops = 4e6 + 2.0 * static_cast<double>(runtime::Products::rows * depth * depth);
    const double rows = std::round(flops / (2.0 * static_cast<double>(depth * depth)));
    const double done = rows * 2.0 * static_cast<double>(depth * depth);
    compute.products.push_back({depth, rate(transport, part, done, [&] { products.run(done); }), 0});
  }
  fit_products(compute);
  for (const bool causal : {false, true}) {
    Compute::Attention& curve = compute.attention[causal ? 1 : 0];
    curve.causal = causal;
    for (const std::size_t length : lengths) {
      runtime::set_activity("calibrating attention");
      runtime::AttentionLoad load(length, causal);
      const double flops = load.forward_flops() * std::max(1.0, std::ceil(4e6 / load.forward_flops()));
      curve.length.push_back(static_cast<double>(length));
      curve.forward.push_back(rate(transport, part, flops, [&] { load.run(flops, false); }));
      curve.backward.push_back(rate(transport, part, 2.5 * flops, [&] { load.run(flops, true); }));
    }
  }

  // Rows of ragged items from all over one buffer to the next place of another, as packing does.
  runtime::set_activity("calibrating copies");
  constexpr std::size_t buffer_bytes = std::size_t{32} << 20U;
  std::vector<std::byte> from(buffer_bytes), to(buffer_bytes);
  struct Item {
    std::size_t at, bytes;
  };
  std::vector<Item> items;
  Random random(1);
  for (std::size_t at = 0; at < buffer_bytes;) {
    const std::size_t bytes = std::min<std::size_t>(buffer_bytes - at, 4096 * (1 + random.next() % 64));
    items.push_back({at, bytes});
    at += bytes;
  }
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.next() % i]);
  const double copied = repeat(
                            transport, 2 * part,
                            [&] {
                              std::size_t at = 0;
                              for (const Item& item : items) {
                                std::memcpy(to.data() + at, from.data() + item.at, item.bytes);
                                at += item.bytes;
                              }
                            },
                            false)
                            .seconds;
  compute.copy_bandwidth = 2.0 * buffer_bytes / copied;
  return compute;
}

double memory_gib(std::uint32_t ranks_per_node) {
  const double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  return bytes / (1024.0 * 1024 * 1024) / ranks_per_node;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &utc);
  return text.data();
}

std::string list(const std::vector<double>& values, double unit) {
  std::string text;
  for (const double value : values) text += fmt::format("{}{:.4g}", text.empty() ? "" : ", ", value / unit);
  return "[" + text + "]";
}

struct Calibration {
  const CalibrateOptions& options;
  const Topology& topology;
  LinkResults links;
  Compute compute;
  double seconds = 0;

  [[nodiscard]] std::uint32_t ranks_per_node() const { return topology.size(0); }
};

std::string link_lines(const Calibration& c) {
  if (c.topology.ranks() == 1) return "\n# Links were not measured: one rank has nobody to exchange with.\n";
  std::string text;
  const auto add = [&](const std::string& key, const std::string& value, const std::string& comment) {
    text += fmt::format("{:<32} # {}\n", key + " = " + value, comment);
  };
  const auto number = [](double value, double unit) { return fmt::format("{:.4g}", value / unit); };
  const LinkResults& links = c.links;
  const auto residual = [](const LinkFit& fit) {
    return fmt::format("large messages, root mean square error {:.1f} %", 100 * fit.residual);
  };
  const auto add_shares = [&](const std::string& kind, const LinkFit& fit) {
    if (fit.share.empty()) return;  // a busy machine: setting up an exchange took longer than any bytes
    add(kind + "_message_bytes", list(fit.share_bytes, 1), "messages for which bandwidth counts");
    add(kind + "_share", list(fit.share, 1), "median over fan-outs");
  };
  if (links.inside.measured) {
    add("nvlink_gbytes", number(links.inside.bandwidth, 1e9), "between ranks of a node; " + residual(links.inside));
    add_shares("nvlink", links.inside);
    add("nvlink_hop_us", number(links.inside.hop_seconds, 1e-6), "half of a byte's way there and back");
  } else {
    text += "# Links within a node were not measured: a node had one rank.\n";
  }
  if (links.between.measured) {
    add("nic_gbytes", number(links.between.bandwidth, 1e9), "between nodes; " + residual(links.between));
    if (links.between.ports > 0) {
      add("nics_per_node", fmt::format("{}", links.between.ports), "all ranks of a node at once over one alone");
    }
    add_shares("nic", links.between);
    add("network_hop_us", number(links.between.hop_seconds, 1e-6), "half of a byte's way there and back");
  } else {
    text += "# Links between nodes were not measured: there was one node.\n";
  }
  if (c.topology.ranks() > 1) {
    add("collective_base_us", number(links.collective_seconds, 1e-6), "a small all-gather, less its hops");
    const std::string error =
        fmt::format("small messages, root mean square error {:.1f} %", 100 * links.latency_residual);
    add("exchange_base_us", number(links.base_seconds, 1e-6), "with the barrier that ends it; " + error);
    add("exchange_peer_us", number(links.peer_seconds, 1e-6), "a peer");
  }
  return "\n[links]\n" + text;
}

std::string cluster_text(const Calibration& c) {
  const Compute& compute = c.compute;
  std::string text = fmt::format(
      "# Measured by orch-run calibrate {} on {}: {} MPI ranks, {} node{} of {}, in {:.0f} s. Times are\n"
      "# medians over repetitions, of all ranks at once and of the slowest. What is not here was not measured: it is "
      "the\n"
      "# extended file's.\n"
      "extends = \"{}\"\nname = \"{}\"\ngpus_per_node = {}\n\n[gpu]\n",
      ORCHMLLM_VERSION, today(), c.topology.ranks(), c.topology.nodes(), c.topology.nodes() == 1 ? "" : "s",
      c.ranks_per_node(), c.seconds, c.options.extends, std::filesystem::path(c.options.out).stem().string(),
      c.ranks_per_node());
  text += fmt::format("peak_tflops = {:.4g} # the best rate of any product, single precision\n", compute.peak / 1e12);
  text += fmt::format("memory_gib = {:.4g} # of the host, by rank\n", memory_gib(c.ranks_per_node()));
  text += fmt::format("memory_bandwidth_gbytes = {:.4g} # read and written by copies of ragged rows\n",
                      compute.copy_bandwidth / 1e9);
  text += fmt::format(
      "\n[gpu.gemm] # {} rows by square matrices of {} to {}; root mean square error {:.1f} %\n"
      "sustained = {:.4g}\nhalf_depth = {:.4g}\n",
      runtime::Products::rows, compute.products.front().depth, compute.products.back().depth, 100 * compute.residual,
      compute.sustained, compute.half_depth);
  for (const Compute::Attention& curve : compute.attention) {
    text += fmt::format(
        "\n[[gpu.attention]]\nhead_dim = {}\ncausal = {}\nlength = {}\nforward_tflops = {}\n"
        "backward_tflops = {}\n",
        runtime::AttentionLoad::head_dim, curve.causal, list(curve.length, 1), list(curve.forward, 1e12),
        list(curve.backward, 1e12));
  }
  return text + link_lines(c);
}

void print_calibration(const Calibration& c) {
  fmt::print("{} rank{}, {} node{} of {}; all ranks at once, medians\n\n", c.topology.ranks(),
             c.topology.ranks() == 1 ? "" : "s", c.topology.nodes(), c.topology.nodes() == 1 ? "" : "s",
             c.ranks_per_node());
  std::vector<std::vector<std::string>> rows{
      {"links", "ranks a node", "peers", "message", "repetitions", "measured us", "fitted us"}};
  for (const LinkRow& row : c.links.rows) {
    rows.push_back({row.link == Link::intra_node ? "within a node" : "between nodes", fmt::format("{}", row.senders),
                    fmt::format("{}", row.peers), bytes_text(static_cast<double>(row.bytes)),
                    fmt::format("{}", row.repetitions), fmt::format("{:.1f}", 1e6 * row.seconds),
                    fmt::format("{:.1f}", 1e6 * row.fitted)});
  }
  if (rows.size() > 1) {
    print_table(rows);
    fmt::print("\n");
  }
  rows = {{"products, inner dimension", "measured GFLOP/s", "fitted"}};
  for (const ProductRow& row : c.compute.products) {
    rows.push_back({fmt::format("{}", row.depth), fmt::format("{:.2f}", row.flops / 1e9),
                    fmt::format("{:.2f}", row.fitted / 1e9)});
  }
  print_table(rows);
  fmt::print("\n");
  rows = {{"attention, length", "forward GFLOP/s", "backward", "causal forward", "causal backward"}};
  const Compute::Attention& full = c.compute.attention[0];
  const Compute::Attention& causal = c.compute.attention[1];
  for (std::size_t i = 0; i < full.length.size(); ++i) {
    rows.push_back({fmt::format("{}", full.length[i]), fmt::format("{:.2f}", full.forward[i] / 1e9),
                    fmt::format("{:.2f}", full.backward[i] / 1e9), fmt::format("{:.2f}", causal.forward[i] / 1e9),
                    fmt::format("{:.2f}", causal.backward[i] / 1e9)});
  }
  print_table(rows);
  fmt::print("\ncopies: {}/s read and written\n{}\n{} s\n", bytes_text(c.compute.copy_bandwidth), link_lines(c),
             std::lround(c.seconds));
}

}  // namespace

void calibrate(MpiTransport& transport, const CalibrateOptions& options) {
  runtime::Stopwatch watch;
  static_cast<void>(runtime::agree(transport, "reading options", [&] {
    if (transport.rank() == 0) {
      std::vector<std::string> inputs = sim::cluster_files(options.extends);
      require_distinct(inputs, {options.out});
      static_cast<void>(sim::load_cluster(options.extends));
    }
    return std::string();
  }));
  const std::vector<std::string> budgets =
      transport.all_gather("comparing settings", fmt::format("{}", options.seconds));
  runtime::require_equal("--seconds", budgets);
  runtime::require_equal("--ranks-per-node",
                         transport.all_gather("comparing settings", fmt::format("{}", options.ranks_per_node)));
  const Topology topology =
      find_topology(transport.all_gather("comparing hosts", transport.host()), options.ranks_per_node);
  for (std::uint32_t node = 1; node < topology.nodes(); ++node) {
    if (topology.size(node) == topology.size(0)) continue;
    throw runtime::AgreedError(fmt::format("calibrate needs as many ranks on every node, but node 0 has {} and node {} "
                                           "has {}",
                                           topology.size(0), node, topology.size(node)),
                               2);
  }
  Calibration c{options, topology, {}, {}, 0};
  runtime::set_activity("calibrating links");
  const double links = topology.ranks() > 1 ? 0.7 * options.seconds : 0;
  if (links > 0) c.links = measure_links(transport, topology, links);
  c.compute = measure_compute(transport, options.seconds - links);
  watch.add_to(c.seconds);
  static_cast<void>(runtime::agree(transport, "writing the cluster file", [&] {
    if (transport.rank() == 0) write_text(cluster_text(c), options.out);
    return std::string();
  }));
  if (transport.rank() != 0 || options.out == "-") return;
  print_calibration(c);
  static_cast<void>(sim::load_cluster(options.out));  // what it wrote, it can read
}

}  // namespace orch::apps
