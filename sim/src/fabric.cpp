#include "orchmllm/sim/fabric.hpp"

#include <algorithm>
#include <map>

namespace orch::sim {

Fabric::Fabric(const Links& links, const LinkRates& rates, const Topology& topology)
    : topology_(topology), ports_per_node_(rates.ports_per_node) {
  for (std::uint32_t rank = 0; rank < topology.ranks(); ++rank) {
    for (const double bandwidth : rates.bandwidth) bandwidth_.insert(bandwidth_.end(), 2, bandwidth);
  }
  if (!(links.oversubscription > 1)) return;
  std::vector<std::uint32_t> attached(std::size_t{topology.leaves()} * topology.rails, 0);
  for (std::uint32_t rank = 0; rank < topology.ranks(); ++rank) {
    if (port(rank) == rank) ++attached[leaf(rank)];
  }
  for (const std::uint32_t nics : attached) {
    // A leaf without NICs has no traffic; its links are there so that leaves can be counted.
    const double bandwidth = std::max(nics, 1U) * rates.bandwidth[1] / links.oversubscription;
    bandwidth_.insert(bandwidth_.end(), 2, bandwidth);
  }
}

FluidNetwork Fabric::network() const {
  FluidNetwork network;
  for (const double bandwidth : bandwidth_) network.add_link(bandwidth);
  return network;
}

std::vector<LinkUse> Fabric::path(std::uint32_t from, std::uint32_t to) const {
  if (topology_.node_of[from] == topology_.node_of[to]) return {{nvlink_out(from), 1}, {nvlink_in(to), 1}};
  std::vector<LinkUse> path{{nic_out(from), 1}, {nic_in(to), 1}};
  if (has_leaf_links() && leaf(from) != leaf(to)) {
    path.push_back({leaf_up(leaf(from)), 1});
    path.push_back({leaf_down(leaf(to)), 1});
  }
  return path;
}

std::vector<LinkUse> Fabric::ring(std::span<const std::uint32_t> ranks) const {
  std::vector<std::span<const std::uint32_t>> nodes;  // the group's ranks, node by node
  for (std::size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    while (end < ranks.size() && topology_.node_of[ranks[end]] == topology_.node_of[ranks[begin]]) ++end;
    nodes.push_back(ranks.subspan(begin, end - begin));
  }
  const auto n = static_cast<double>(ranks.size());
  const double passed_on = (n - 1) / n;
  std::map<LinkId, double> weight;
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const std::span<const std::uint32_t> node = nodes[k];
    for (const std::uint32_t rank : node) {
      if (node.size() == 1) break;
      weight[nvlink_out(rank)] = passed_on;
      weight[nvlink_in(rank)] = passed_on;
    }
    if (nodes.size() == 1) break;
    const std::span<const std::uint32_t> next = nodes[(k + 1) % nodes.size()];
    for (std::size_t i = 0; i < node.size(); ++i) {
      for (const LinkUse& use : path(node[i], next[i % next.size()])) {
        weight[use.link] += passed_on / static_cast<double>(node.size());
      }
    }
  }
  std::vector<LinkUse> path;
  for (const auto& [link, sum] : weight) path.push_back({link, sum});
  return path;
}

}  // namespace orch::sim
