// Node-wise placement as an integer program, solved by lp_solve: the published way, and the oracle of the others.
//
// Binary x[batch, node], every batch on one node, every node filled. `total` minimises the bytes between nodes,
// `bottleneck` the largest volume that a node sends or receives. Bytes enter the program as multiples of the largest
// batch, so that its numbers stay below a million; the result is recomputed in bytes.
// Complexity: exponential in the worst case; a time limit gives the best placement found. Guarantee: `proved_optimal`
// says whether lp_solve proved it within `gap` and one such unit. Throws Infeasible if the time limit passes before any
// placement is found. Needs lp_solve 5.5 (target orchmllm::ilp). Source: OrchMLLM (arXiv 2503.23830), node-wise
// all-to-all.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lpsolve/lp_lib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "orchmllm/placement/placement.hpp"

namespace orch {

struct IlpOptions {
  PlacementObjective objective = PlacementObjective::total;
  double seconds = 10;  ///< time limit
  double gap = 0;       ///< relative: stop when proven to be this close to the optimum
};

namespace placement {

namespace detail {

/// lp_solve's columns count from 1: x[batch, node] row by row, then the bottleneck.
class IntegerProgram {
 public:
  IntegerProgram(const TrafficMatrix& nodes, const Topology& topology, const IlpOptions& options)
      : nodes_(nodes),
        topology_(topology),
        batches_(static_cast<int>(nodes.rows())),
        places_(static_cast<int>(topology.nodes())),
        columns_(batches_ * places_ + (options.objective == PlacementObjective::bottleneck ? 1 : 0)),
        program_(make_lp(0, columns_)) {
    if (!program_) throw Error("lp_solve: not enough memory for the integer program", 1);
    set_verbose(program_.get(), NEUTRAL);
    for (std::uint32_t batch = 0; batch < nodes.rows(); ++batch) {
      unit_ = std::max(unit_, static_cast<double>(nodes.row_bytes(batch)) * 1e-6);
    }
    set_add_rowmode(program_.get(), TRUE);
    add_assignment_rows();
    if (options.objective == PlacementObjective::total) {
      add_total_objective();
    } else {
      add_bottleneck_rows();
    }
    for (int column = 1; column <= batches_ * places_; ++column) set_binary(program_.get(), column, TRUE);
    // With a continuous bottleneck lp_solve 5.5 prunes better solutions now and then; in whole units it does not.
    if (columns_ > batches_ * places_) set_int(program_.get(), columns_, TRUE);
    set_minim(program_.get());
    set_timeout(program_.get(), std::max(1L, static_cast<long>(std::ceil(options.seconds))));
    set_mip_gap(program_.get(), TRUE, 1e-12);
    set_mip_gap(program_.get(), FALSE, std::max(options.gap, 1e-12));
    set_presolve(program_.get(), PRESOLVE_NONE, 0);
  }

  [[nodiscard]] bool exact() const { return unit_ == 1; }

  /// batch → node, and whether it is proved optimal.
  std::pair<std::vector<std::uint32_t>, bool> solve() {
    const int status = ::solve(program_.get());
    if (status != OPTIMAL && status != SUBOPTIMAL && status != TIMEOUT) {
      throw Error("lp_solve failed on " + std::to_string(batches_) + " batches and " + std::to_string(places_) +
                      " nodes (status " + std::to_string(status) + "); use the flow solver",
                  1);
    }
    if (status == TIMEOUT) {
      throw Infeasible("lp_solve found no placement of " + std::to_string(batches_) + " batches on " +
                       std::to_string(places_) + " nodes (status " + std::to_string(status) +
                       "); allow more time, or use the flow solver");
    }
    std::vector<double> values(static_cast<std::size_t>(columns_));
    get_variables(program_.get(), values.data());
    std::vector<std::uint32_t> node_of(nodes_.rows());
    for (int batch = 0; batch < batches_; ++batch) {
      const auto row = values.begin() + batch * places_;
      node_of[static_cast<std::size_t>(batch)] = static_cast<std::uint32_t>(std::max_element(row, row + places_) - row);
    }
    return {std::move(node_of), status == OPTIMAL};
  }

 private:
  [[nodiscard]] int column(int batch, int node) const { return batch * places_ + node + 1; }

  void add(std::vector<double>& values, std::vector<int>& columns, int type, double right) {
    add_constraintex(program_.get(), static_cast<int>(values.size()), values.data(), columns.data(), type, right);
  }

  void add_assignment_rows() {
    for (int batch = 0; batch < batches_; ++batch) {
      std::vector<int> columns;
      for (int node = 0; node < places_; ++node) columns.push_back(column(batch, node));
      std::vector<double> ones(columns.size(), 1);
      add(ones, columns, EQ, 1);
    }
    for (int node = 0; node < places_; ++node) {
      std::vector<int> columns;
      for (int batch = 0; batch < batches_; ++batch) columns.push_back(column(batch, node));
      std::vector<double> ones(columns.size(), 1);
      add(ones, columns, EQ, topology_.size(static_cast<std::uint32_t>(node)));
    }
  }

  void add_total_objective() {
    std::vector<double> values;
    std::vector<int> columns;
    for (std::uint32_t batch = 0; batch < nodes_.rows(); ++batch) {
      for (const TrafficEntry& entry : nodes_.row(batch)) {
        values.push_back(-static_cast<double>(entry.bytes) / unit_);
        columns.push_back(column(static_cast<int>(batch), static_cast<int>(entry.place)));
      }
    }
    set_add_rowmode(program_.get(), FALSE);
    set_obj_fnex(program_.get(), static_cast<int>(values.size()), values.data(), columns.data());
  }

  /// received(node) − z ≤ 0 and held(node) − kept(node) − z ≤ 0.
  void add_bottleneck_rows() {
    std::vector<double> held(topology_.nodes(), 0);
    std::vector<std::vector<double>> received(topology_.nodes());
    std::vector<std::vector<double>> kept(topology_.nodes());
    for (std::uint32_t batch = 0; batch < nodes_.rows(); ++batch) {
      const double all = static_cast<double>(nodes_.row_bytes(batch)) / unit_;
      for (std::uint32_t node = 0; node < topology_.nodes(); ++node) {
        const double own = static_cast<double>(nodes_.bytes(batch, node)) / unit_;
        received[node].push_back(all - own);
        kept[node].push_back(-own);
        held[node] += own;
      }
    }
    for (std::uint32_t node = 0; node < topology_.nodes(); ++node) {
      std::vector<int> columns;
      for (int batch = 0; batch < batches_; ++batch) columns.push_back(column(batch, static_cast<int>(node)));
      columns.push_back(columns_);
      received[node].push_back(-1);
      kept[node].push_back(-1);
      add(received[node], columns, LE, 0);
      add(kept[node], columns, LE, -held[node]);
    }
    set_add_rowmode(program_.get(), FALSE);
    double one = 1;
    int last = columns_;
    set_obj_fnex(program_.get(), 1, &one, &last);
  }

  struct Delete {
    void operator()(lprec* program) const { delete_lp(program); }
  };

  const TrafficMatrix& nodes_;
  const Topology& topology_;
  int batches_;
  int places_;
  int columns_;
  std::unique_ptr<lprec, Delete> program_;
  double unit_ = 1;  ///< bytes
};

}  // namespace detail

[[nodiscard]] inline Placement place_ilp(const TrafficMatrix& by_rank, const Topology& topology,
                                         const IlpOptions& options = {}) {
  detail::require_square(by_rank, topology);
  const TrafficMatrix nodes = by_node(by_rank, topology);
  constexpr std::uint64_t most_variables = 1U << 22U;
  if (std::uint64_t{nodes.rows()} * topology.nodes() > most_variables) {
    throw InvalidInput("an integer program of " + std::to_string(nodes.rows()) + " x " +
                       std::to_string(topology.nodes()) + " variables is too large for lp_solve; use the flow solver");
  }
  detail::IntegerProgram program(nodes, topology, options);
  const auto [node_of, proved] = program.solve();
  // Bounds beside the program's own are the flow solver's, exact and cheap.
  const Placement flow = place_total(by_rank, topology);
  Placement result = finish(by_rank, nodes, topology, node_of, flow.total_bytes, flow.bottleneck_bound);
  result.proved_optimal = proved;
  result.solver = "ilp";
  result.reason = proved ? "asked for; proved optimal within its gap" : "asked for; its time was used up";
  if (proved && program.exact() && options.gap == 0 && options.objective == PlacementObjective::bottleneck) {
    result.bottleneck_bound = result.bottleneck_bytes;
  }
  return result;
}

}  // namespace placement

}  // namespace orch
