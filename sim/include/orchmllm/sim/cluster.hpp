// A cluster: GPUs, links and training software, as the figures that the simulator computes with, each from a cluster
// file.
//
// Units are in the names. Rates are achieved, not nominal, except peaks, which define MFU. A cluster file may extend
// another one: it then holds only what differs.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "orchmllm/exchange/link_traffic.hpp"
#include "orchmllm/placement/topology.hpp"

namespace orch::sim {

/// Points (x, y), x ascending; between points linear in log2(x), outside constant.
struct Curve {
  std::vector<double> x;
  std::vector<double> y;
  [[nodiscard]] double at(double x_value) const;
};

/// Achieved attention rate of one kernel by length. Causal kernels count half of the square.
struct AttentionRate {
  std::uint64_t head_dim = 0;
  bool causal = false;
  Curve forward_flops;   ///< length → FLOP/s
  Curve backward_flops;  ///< length → FLOP/s
};

/// Number format of the transformer layers' matrix products; everything else is 16 bits.
enum class Precision : std::uint8_t { bf16, fp8 };

/// Part of a product's output that one multiprocessor computes at a time.
struct Tile {
  double rows = 0;
  double columns = 0;
  double efficiency = 1;  ///< against the best tile
};

struct Gpu {
  double peak_flops = 0;      ///< dense 16 bits, the vendor's figure
  double peak_flops_fp8 = 0;  ///< 0: no such units
  double memory_bytes = 0;
  double memory_bandwidth = 0;  ///< achieved bytes/s of memory-bound kernels
  // Matrix products: kernels.hpp has the equation.
  double multiprocessors = 1;
  double gemm_sustained = 1;      ///< share of the peak that a large product keeps up
  double gemm_sustained_fp8 = 1;  ///< of the fp8 peak
  double gemm_half_depth = 0;     ///< inner dimension at which half of that is reached
  std::vector<Tile> tiles;        ///< none: no quantisation
  std::vector<AttentionRate> attention;
  double attention_scale = 1;                      ///< the software's kernels against the measured ones
  std::vector<std::uint64_t> attention_head_dims;  ///< that kernels exist for; others are padded up
  double launch_seconds = 0;                       ///< host time per kernel
  double kernels_per_layer = 0;                    ///< forward

  [[nodiscard]] double peak(Precision precision) const {
    return precision == Precision::fp8 ? peak_flops_fp8 : peak_flops;
  }
};

/// Bytes/s per GPU and direction; of NICs that several GPUs share, per NIC.
struct Links {
  double nvlink_bandwidth = 0;
  double nvlink_all_reduce_bandwidth = 0;  ///< of an all-reduce over a whole node, 2 (n − 1)/n · bytes / seconds
  double nic_bandwidth = 0;
  std::uint32_t nics_per_node = 0;  ///< GPU i uses NIC i mod so many; 0: every GPU has its own
  Curve nvlink_size_share;          ///< bytes of a message → share of the bandwidth; empty: 1
  Curve nic_size_share;
  double collective_base_seconds = 0;
  double nvlink_hop_seconds = 0;
  double network_hop_seconds = 0;
  double exchange_base_seconds = 0;  ///< one all-to-all
  double exchange_peer_seconds = 0;  ///< per peer of a rank
  // Leaf switches between NICs and spine.
  std::uint32_t nodes_per_leaf = 0;  ///< nodes whose NICs share leaf switches; 0: all of them
  std::uint32_t rails = 0;           ///< leaf switches that a node's NICs are spread over; 0: one for each
  double oversubscription = 1;       ///< NIC bandwidth of a leaf switch over its bandwidth to the spine
};

struct Software {
  Precision precision = Precision::bf16;
  std::uint32_t layers_per_unit = 1;        ///< layers that FSDP gathers together
  double parameter_bytes = 2;               ///< gathered, or resident where weights are not sharded
  double gradient_bytes = 4;                ///< kept
  double reduced_gradient_bytes = 4;        ///< sent, and full-sized in FSDP until reduced
  double master_bytes = 4;                  ///< optimizer's own weights
  double moment_bytes = 8;                  ///< optimizer's moments
  double optimizer_traffic_bytes = 28;      ///< read and written per parameter and step
  double elementwise_traffic = 1;           ///< bytes of memory-bound operators against fully fused ones
  double compiled_elementwise_traffic = 1;  ///< … where a compiler fuses them
  double loss_traffic_bytes = 0;            ///< read and written per logit, forward and backward
  double tensor_overlap = 0;                ///< share of tensor-parallel communication hidden behind products
  double collective_interference = 0;       ///< share of a collective's time by which compute beside it takes longer
  bool sequence_parallel = true;            ///< norms and residuals are split among tensor-parallel ranks
  bool reduce_every_micro_batch = false;    ///< FSDP without no_sync
  bool flash_attention = true;              ///< attention probabilities are not kept
  bool dropout = false;                     ///< masks are kept
  double selective_gemm = 0;                ///< share of products that selective recomputation repeats
  double selective_elementwise = 1;         ///< … of memory-bound operators
  std::uint64_t loss_chunk_tokens = 0;
  double reserved_bytes = 0;           ///< context, workspaces
  double channel_buffer_bytes = 0;     ///< communication library, per peer of an exchange
  double fragmentation = 0;            ///< share of the rest that the allocator loses
  double plan_seconds_per_sample = 0;  ///< planning a step, per sample of the global batch
  double step_overhead_seconds = 0;    ///< host work between steps
};

struct Cluster {
  std::string name;
  std::uint32_t gpus_per_node = 0;
  Gpu gpu;
  Links links;
  Software software;
  double gpu_hour_cost = 0;  ///< money per GPU and hour; 0: unknown
  std::string currency;

  /// `ranks` of `gpus` GPUs each.
  [[nodiscard]] Topology topology(std::uint32_t ranks, std::uint32_t gpus = 1) const {
    const std::uint32_t per_node = std::max(1U, gpus_per_node / gpus);
    return uniform_topology(ranks, per_node,
                            {.rails = std::min(links.rails, per_node), .nodes_per_leaf = links.nodes_per_leaf});
  }
  /// Of one instance that spans `gpus` GPUs: they send and receive together.
  [[nodiscard]] LinkRates exchange_rates(std::uint32_t gpus = 1) const {
    LinkRates rates{{links.nvlink_bandwidth * gpus, links.nic_bandwidth * gpus},
                    links.exchange_base_seconds,
                    links.exchange_peer_seconds};
    if (links.nics_per_node == 0) return rates;
    const std::uint32_t per_node = std::max(1U, gpus_per_node / gpus);
    rates.ports_per_node = std::min(links.nics_per_node, per_node);
    rates.bandwidth[1] = links.nic_bandwidth * links.nics_per_node / rates.ports_per_node;
    return rates;
  }
};

/// `name` is a path or the name of a shipped file. Throws InvalidInput as FILE:LINE.
[[nodiscard]] Cluster load_cluster(const std::string& name);
/// The file and all that it extends.
[[nodiscard]] std::vector<std::string> cluster_files(const std::string& name);
/// All that a cluster file and those it extends state, key → value: "links.nics_per_node" → "4", entries of lists by
/// number. Equal for files that differ in layout, order of keys, notation of numbers or how they extend each other.
/// Throws InvalidInput.
[[nodiscard]] std::map<std::string, std::string> cluster_settings(const std::string& name);

}  // namespace orch::sim
