#include "calibrate.hpp"

#include <fmt/format.h>
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <functional>
#include <limits>
#include <vector>

#include "links.hpp"
#include "orchmllm/cost/fit.hpp"
#include "orchmllm/runtime/activity.hpp"
#include "orchmllm/runtime/agreement.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/version.hpp"
#include "run.hpp"
#include "statistics.hpp"

namespace orch::apps {

namespace {

/// Rate of matrix products by inner dimension.
struct ProductRow {
  std::size_t depth = 0;
  double flops = 0;   ///< per second and rank
  double fitted = 0;  ///< by peak · sustained · depth / (depth + half depth)
};

/// Rates of attention with one mask.
struct AttentionCurve {
  bool causal = false;
  std::vector<double> length, forward, backward;  ///< tokens, FLOP/s
};

struct Compute {
  std::vector<ProductRow> products;
  double peak = 0;
  double sustained = 1;
  double half_depth = 0;
  double residual = 0;
  std::vector<AttentionCurve> attention;
  double copy_bandwidth = 0;  ///< bytes read and written
};

/// A load of all ranks at once, as in a phase.
struct Load {
  double amount = 0;  ///< floating-point operations, or bytes
  std::function<void()> run;
  double seconds = std::numeric_limits<double>::infinity();  ///< of the quickest round

  [[nodiscard]] double rate() const { return amount / seconds; }
};

void measure(Backend& transport, double seconds, Timing timing, std::vector<Load>& loads) {
  constexpr double rounds = 30;  // short ones fit between what else runs on a core
  each_round(transport, seconds, rounds, [&](double round_seconds) {
    Budget budget(transport, round_seconds);
    for (std::size_t i = 0; i < loads.size(); ++i) {
      const double share = budget.left() / static_cast<double>(loads.size() - i);
      loads[i].seconds = std::min(loads[i].seconds, repeat(transport, share, timing, loads[i].run).seconds);
    }
  });
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

Compute measure_compute(Backend& backend, const DeviceLoads& device, double seconds) {
  std::vector<Load> loads;
  for (const ProductLoad& product : device.products) {
    const double row_flops = 2.0 * static_cast<double>(product.depth * product.depth);
    const double flops = row_flops * std::round(static_cast<double>(device.rows) + device.least_flops / row_flops);
    loads.push_back({flops, [flops, &product] { product.run(flops); }});
  }
  for (const SequenceLoad& sequence : device.attention) {
    const double flops = sequence.forward_flops * std::max(1.0, std::ceil(device.least_flops / sequence.forward_flops));
    loads.push_back({flops, [flops, &sequence] { sequence.run(flops, false); }});
    loads.push_back({2.5 * flops, [flops, &sequence] { sequence.run(flops, true); }});
  }
  loads.push_back({2 * device.copied_bytes, device.copy});  // read and written
  measure(backend, seconds, device.timing, loads);

  Compute compute;
  auto load = loads.begin();
  for (const ProductLoad& product : device.products) compute.products.push_back({product.depth, (load++)->rate(), 0});
  fit_products(compute);
  for (const SequenceLoad& sequence : device.attention) {
    if (compute.attention.empty() || compute.attention.back().causal != sequence.causal) {
      compute.attention.push_back({sequence.causal, {}, {}, {}});
    }
    AttentionCurve& curve = compute.attention.back();
    curve.length.push_back(static_cast<double>(sequence.length));
    curve.forward.push_back((load++)->rate());
    curve.backward.push_back((load++)->rate());
  }
  compute.copy_bandwidth = load->rate();
  return compute;
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
  std::string extends;
  const Topology& topology;
  LinkResults links;
  DeviceLoads device;
  Compute compute;
  double seconds = 0;

  [[nodiscard]] std::uint32_t ranks_per_node() const { return topology.size(0); }
  [[nodiscard]] const char* counting() const {
    return device.timing == Timing::quickest ? "medians of the quietest round, of compute the quickest"
                                             : "medians of the quietest round";
  }
  [[nodiscard]] bool on_gpus() const { return options.transport == "nccl"; }
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
  add("collective_base_us", number(links.collective_seconds, 1e-6), "a small all-gather, less its hops");
  const std::string error =
      fmt::format("small messages, root mean square error {:.1f} %", 100 * links.latency_residual);
  add("exchange_base_us", number(links.base_seconds, 1e-6), "with the barrier that ends it; " + error);
  add("exchange_peer_us", number(links.peer_seconds, 1e-6), "a peer");
  return "\n[links]\n" + text;
}

std::string cluster_text(const Calibration& c) {
  const Compute& compute = c.compute;
  std::string text = fmt::format(
      "# Measured by orch-run calibrate {} on {}: {} rank{} over {}, {} node{} of {}, in {:.0f} s. Times are\n"
      "# of all ranks at once and of the slowest: {}. What is not here\n# was not measured: it is the extended "
      "file's.\n"
      "extends = \"{}\"\nname = \"{}\"\ngpus_per_node = {}\n\n[gpu]\n",
      ORCHMLLM_VERSION, today(), c.topology.ranks(), c.topology.ranks() == 1 ? "" : "s", c.on_gpus() ? "NCCL" : "MPI",
      c.topology.nodes(), c.topology.nodes() == 1 ? "" : "s", c.ranks_per_node(), c.seconds, c.counting(), c.extends,
      std::filesystem::path(c.options.out).stem().string(), c.ranks_per_node());
  text += fmt::format("peak_tflops = {:.4g} # the best rate of any product, {}\n", compute.peak / 1e12,
                      c.device.arithmetic);
  constexpr double gib = 1024.0 * 1024 * 1024;
  if (c.on_gpus()) {
    text += fmt::format("memory_gib = {:.4g} # as the driver says\n", c.device.memory_bytes / gib);
  } else {
    text +=
        fmt::format("memory_gib = {:.4g} # of the host, by rank\n", c.device.memory_bytes / gib / c.ranks_per_node());
  }
  text += fmt::format("memory_bandwidth_gbytes = {:.4g} # read and written by copies of ragged rows\n",
                      compute.copy_bandwidth / 1e9);
  text += fmt::format(
      "\n[gpu.gemm] # {} rows by square matrices of {} to {}; root mean square error {:.1f} %\n"
      "sustained = {:.4g}\nhalf_depth = {:.4g}\n",
      c.device.rows, compute.products.front().depth, compute.products.back().depth, 100 * compute.residual,
      compute.sustained, compute.half_depth);
  if (c.on_gpus()) text += "\n# Attention: two products a head, without a softmax; fused kernels differ.";
  for (const AttentionCurve& curve : compute.attention) {
    text += fmt::format(
        "\n[[gpu.attention]]\nhead_dim = {}\ncausal = {}\nlength = {}\nforward_tflops = {}\n"
        "backward_tflops = {}\n",
        c.device.head_dim, curve.causal, list(curve.length, 1), list(curve.forward, 1e12), list(curve.backward, 1e12));
  }
  return text + link_lines(c);
}

void print_calibration(const Calibration& c) {
  fmt::print("{} rank{}, {} node{} of {}; all ranks at once; {}\n\n", c.topology.ranks(),
             c.topology.ranks() == 1 ? "" : "s", c.topology.nodes(), c.topology.nodes() == 1 ? "" : "s",
             c.ranks_per_node(), c.counting());
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
  rows = {{"attention, length", "mask", "forward GFLOP/s", "backward"}};
  for (const AttentionCurve& curve : c.compute.attention) {
    for (std::size_t i = 0; i < curve.length.size(); ++i) {
      rows.push_back({fmt::format("{}", curve.length[i]), curve.causal ? "causal" : "none",
                      fmt::format("{:.2f}", curve.forward[i] / 1e9), fmt::format("{:.2f}", curve.backward[i] / 1e9)});
    }
  }
  print_table(rows);
  fmt::print("\ncopies: {}/s read and written\n{}\n{} s\n", bytes_text(c.compute.copy_bandwidth), link_lines(c),
             std::lround(c.seconds));
}

}  // namespace

void calibrate(Backend& backend, const CalibrateOptions& options) {
  runtime::Stopwatch watch;
  std::string extends = options.extends;
  if (extends.empty()) extends = options.transport == "nccl" ? "h100-8x400g" : "mpi-localhost";
  Budget budget(backend, options.seconds);
  static_cast<void>(runtime::agree(backend, "reading options", [&] {
    if (backend.rank() == 0) {
      std::vector<std::string> inputs = sim::cluster_files(extends);
      require_distinct(inputs, {options.out});
      static_cast<void>(sim::load_cluster(extends));
    }
    return std::string();
  }));
  const std::vector<std::string> budgets = backend.all_gather("comparing settings", fmt::format("{}", options.seconds));
  runtime::require_equal("--seconds", budgets);
  runtime::require_equal("--ranks-per-node",
                         backend.all_gather("comparing settings", fmt::format("{}", options.ranks_per_node)));
  const Topology topology =
      find_topology(backend.all_gather("comparing hosts", backend.host()), options.ranks_per_node);
  for (std::uint32_t node = 1; node < topology.nodes(); ++node) {
    if (topology.size(node) == topology.size(0)) continue;
    throw runtime::AgreedError(fmt::format("calibrate needs as many ranks on every node, but node 0 has {} and node {} "
                                           "has {}",
                                           topology.size(0), node, topology.size(node)),
                               2);
  }
  Calibration c{options, extends, topology, {}, {}, {}, 0};
  if (topology.ranks() > 1) {
    runtime::set_activity("calibrating links");
    c.links = measure_links(backend, topology, 0.7 * options.seconds);
  }
  runtime::set_activity("calibrating compute");
  c.device = backend.loads();  // taken out of the time, too: a GPU's are large
  c.compute = measure_compute(backend, c.device, budget.left());
  watch.add_to(c.seconds);
  static_cast<void>(runtime::agree(backend, "writing the cluster file", [&] {
    if (backend.rank() == 0) write_text(cluster_text(c), options.out);
    return std::string();
  }));
  if (backend.rank() != 0 || options.out == "-") return;
  print_calibration(c);
  static_cast<void>(sim::load_cluster(options.out));  // what it wrote, it can read
}

}  // namespace orch::apps
