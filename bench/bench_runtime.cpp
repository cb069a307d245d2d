// Exchange throughput of the runtime against plain MPI_Alltoallv, on the same byte matrices in the same run.
//
//   mpirun -np 4 bench_runtime      (scripts/bench.sh runtime: 2, 4 and 8 ranks)
//
// Hidden states of a global batch with log-normal lengths go from where samples were drawn to the layout that a
// balancer chose. Both ways carry the same bytes between the same buffers, in turn; a repetition lasts until the
// slowest rank is done. throughput_ratio: the median over repetitions of what MPI_Alltoallv took over what the runtime
// took. What stays on its rank is left out of both.
// SPDX-License-Identifier: Apache-2.0
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lengths.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/balance/movement.hpp"
#include "orchmllm/exchange/link_traffic.hpp"
#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/runtime/mpi_transport.hpp"

namespace {

using namespace orch;

constexpr std::uint64_t row_bytes = 2 * 3584;  // a hidden state
constexpr std::uint32_t samples_a_rank = 16;
constexpr int repetitions = 101;

/// What one rank sends and receives, as both ways need it.
struct Runs {
  std::vector<std::byte> send, receive;
  std::vector<runtime::SendRun> sends;
  std::vector<runtime::ReceiveRun> receives;
  std::vector<int> send_counts, send_offsets, receive_counts, receive_offsets;
};

Runs runs_of(const ExchangePlan& plan, std::uint32_t rank) {
  const auto part_bytes = [&](std::uint32_t t) { return plan.part(t, 0).elements * row_bytes; };
  Runs runs;
  for (auto* list : {&runs.send_counts, &runs.send_offsets, &runs.receive_counts, &runs.receive_offsets}) {
    list->resize(plan.ranks(), 0);
  }
  runs.send.resize(plan.send_elements[0][rank] * row_bytes);
  runs.receive.resize(plan.receive_elements[0][rank] * row_bytes);
  for (const std::uint32_t t : send_order(plan, rank)) {
    const std::uint32_t to = plan.transfers[t].to;
    if (to == rank) continue;
    const std::size_t offset = plan.part(t, 0).send_offset * row_bytes;
    runs.sends.push_back({to, 0, std::span(runs.send).subspan(offset, part_bytes(t))});
    runs.send_counts[to] = static_cast<int>(part_bytes(t));
    runs.send_offsets[to] = static_cast<int>(offset);
  }
  for (const std::uint32_t t : plan.receives(rank)) {
    const std::uint32_t from = plan.transfers[t].from;
    if (from == rank) continue;
    const std::size_t offset = plan.part(t, 0).receive_offset * row_bytes;
    runs.receives.push_back({from, 0, std::span(runs.receive).subspan(offset, part_bytes(t))});
    runs.receive_counts[from] = static_cast<int>(part_bytes(t));
    runs.receive_offsets[from] = static_cast<int>(offset);
  }
  return runs;
}

/// Seconds until the slowest rank is done.
template <class Exchange>
double timed(Exchange&& exchange) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  exchange();
  const double mine = MPI_Wtime() - begin;
  double slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + repetitions / 2, values.end());
  return values[repetitions / 2];
}

std::string measure(runtime::MpiTransport& transport, const char* name, const std::vector<std::uint32_t>& lengths,
                    const Assignment& assignment) {
  const Layout before = layout(home_ranks(transport.ranks(), samples_a_rank), transport.ranks());
  const ExchangePlan plan = exchange_plan(rearrangement(before, layout(assignment.rank_of, transport.ranks())),
                                          {{{"hidden", row_bytes, 1}, by_slot(before, lengths)}});
  Runs runs = runs_of(plan, transport.rank());
  std::vector<double> by_runtime;
  std::vector<double> by_alltoallv;
  std::vector<double> ratios;
  const auto run = [&] { transport.all_to_all(name, runs.sends, runs.receives); };
  const auto run_plain = [&] {
    MPI_Alltoallv(runs.send.data(), runs.send_counts.data(), runs.send_offsets.data(), MPI_BYTE, runs.receive.data(),
                  runs.receive_counts.data(), runs.receive_offsets.data(), MPI_BYTE, MPI_COMM_WORLD);
  };
  for (int repetition = -2; repetition < repetitions; ++repetition) {  // two to warm up
    const bool plain_first = repetition % 2 == 0;
    const double earlier = plain_first ? timed(run_plain) : 0;
    const double ours = timed(run);
    const double plain = plain_first ? earlier : timed(run_plain);
    if (repetition < 0) continue;
    by_runtime.push_back(ours);
    by_alltoallv.push_back(plain);
    ratios.push_back(plain / ours);
  }
  const std::uint64_t bytes = traffic(plan, uniform_topology(transport.ranks(), transport.ranks())).moved_bytes();
  char text[512];
  std::snprintf(text, sizeof text,
                " {\"layout\": \"%s\", \"ranks\": %u, \"bytes\": %llu, \"transfers\": %zu, \"runtime_seconds\": %.6g, "
                "\"alltoallv_seconds\": %.6g, \"throughput_ratio\": %.4g}",
                name, transport.ranks(), static_cast<unsigned long long>(bytes), plan.transfers.size(),
                median(by_runtime), median(by_alltoallv), median(ratios));
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  runtime::MpiTransport transport(argc, argv, {});
  const std::uint32_t ranks = transport.ranks();
  const std::vector<std::uint64_t> tokens =
      bench::log_normal_lengths(std::size_t{ranks} * samples_a_rank, 1.0, 1, 4096);
  const std::vector<std::uint32_t> lengths(tokens.begin(), tokens.end());
  const std::vector<std::uint32_t> home = home_ranks(ranks, samples_a_rank);
  const Topology node = uniform_topology(ranks, ranks);
  const std::string lpt = measure(transport, "lpt", lengths, balance::greedy(tokens, ranks));
  const std::string movement =
      measure(transport, "movement", lengths, balance::movement(tokens, tokens, home, node).assignment);
  if (transport.rank() == 0) std::printf("[\n%s,\n%s\n]\n", lpt.c_str(), movement.c_str());
  return 0;
}
