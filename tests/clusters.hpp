// Clusters whose figures can be followed by hand.
#pragma once

#include "orchmllm/sim/cluster.hpp"

namespace orch::test {

/// One TFLOP/s, attention at its own rate, everything else free of charge; for the plain layers of models.hpp.
inline sim::Cluster plain_cluster(double attention_flops = 1e12) {
  sim::Cluster c;
  c.name = "plain";
  c.gpus_per_node = 8;
  c.gpu.peak_flops = 1e12;
  c.gpu.memory_bytes = 1e12;
  c.gpu.memory_bandwidth = 1e18;
  const sim::Curve rate{{1000}, {attention_flops}};
  c.gpu.attention = {{1000, false, rate, rate}, {1000, true, rate, rate}};
  c.gpu.attention_head_dims = {1000};
  c.links.nvlink_bandwidth = 1e18;
  c.links.nic_bandwidth = 1e18;
  c.software.loss_chunk_tokens = 1000;
  return c;
}

}  // namespace orch::test
