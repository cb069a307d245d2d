// Exchange throughput of the runtime against plain MPI_Alltoallv, on the same byte matrices in the same run.
//
//   mpirun -np 4 bench_runtime      (scripts/bench.sh runtime: 2, 4 and 8 ranks)
//
// An encoder's outputs of a global batch with log-normal lengths go from where samples were drawn to the LLM sequences
// that a balancer chose: a route of a step plan, run by the executor's own code. `exchange` is the whole of it:
// packing, messages, unpacking, and copies of what stays on its rank. Beside it the very same copies run from lists
// that are there beforehand, and MPI_Alltoallv between them with counts that are there beforehand. `transport` is the
// messages alone, between the same buffers. All four take turns; a repetition lasts until the slowest rank is done.
// throughput_ratio: the median over repetitions of what the way with MPI_Alltoallv took over what the runtime took.
// Every element that either way brings is checked once.
// SPDX-License-Identifier: Apache-2.0
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "lengths.hpp"
#include "median.hpp"
#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/orchestrate/sampler.hpp"
#include "orchmllm/runtime/contents.hpp"
#include "orchmllm/runtime/exchange.hpp"
#include "orchmllm/runtime/mpi_transport.hpp"

namespace {

using namespace orch;
using bench::median;

constexpr std::uint32_t samples_a_rank = 16;
constexpr int repetitions = 101;

/// An LLM of 7B parameters, and an encoder of as many tokens as it hands to the LLM.
Mllm model() {
  const Transformer llm{.layers = 28,
                        .hidden = 3584,
                        .heads = 28,
                        .kv_heads = 4,
                        .head_dim = 128,
                        .ffn = 18944,
                        .gated_mlp = true,
                        .causal = true,
                        .vocab = 152064};
  const Transformer vision{.layers = 32, .hidden = 1280, .heads = 16, .kv_heads = 16, .head_dim = 80, .ffn = 5120};
  return {"bench", {{"vision", vision, NativeImages{}, {1280, 3584, 3584}, 3}}, llm};
}

StepPlan step_plan(std::uint32_t ranks, Balancer balancer) {
  const Mllm mllm = model();
  PhaseLengths lengths;
  for (const std::uint64_t tokens : bench::log_normal_lengths(std::size_t{ranks} * samples_a_rank, 1.0, 1, 4096)) {
    const auto length = static_cast<std::uint32_t>(tokens);
    Sample sample;
    sample.tokens = {{"vision", {{length, length}}}};
    append(lengths, mllm, sample);
  }
  std::vector<std::uint32_t> samples(lengths.samples());
  std::iota(samples.begin(), samples.end(), 0U);
  return plan_step(mllm, lengths, samples, home_ranks(ranks, samples_a_rank), uniform_topology(ranks, ranks),
                   {.encoders = {.balancer = Balancer::home}, .llm = {.balancer = balancer}});
}

/// The encoder's outputs as one rank carries them.
class OutputRoute {
 public:
  OutputRoute(const StepPlan& plan, std::uint32_t rank)
      : made_(runtime::made(plan, plan.routes.back(), rank)), used_(runtime::used(plan, plan.routes.back(), rank)) {
    const RankView view = rank_view(plan, rank);
    legs_ = runtime::route_legs(view.routes.back(), view.phases.back(), used_.bytes);
    places_ = {{{memory_.of(from_, made_.bytes[0])}, {{}}, {{}}, {memory_.of(to_, used_.bytes[0])}}};
    memory_.fill({}, made_.extents, places_[0]);
  }

  /// As the executor does it.
  template <runtime::Transport T, runtime::Memory M>
  void run(T& transport, M& memory, runtime::MessageBuffers<M>& buffers) {
    runtime::ExchangeCount count;
    runtime::run_route(transport, memory, "bench", legs_, places_, buffers, count);
  }

  void forget() { std::fill(places_[3][0].begin(), places_[3][0].end(), std::byte{0}); }

  /// Elements that are not where they should be.
  [[nodiscard]] std::uint64_t wrong() const {
    std::uint64_t count = 0;
    (void)memory_.check({}, used_.extents, places_[3], legs_.element_bytes, runtime::Verify::full,
                        [&](const runtime::Mismatch&) { ++count; });
    return count;
  }

 private:
  runtime::HostMemory memory_;
  runtime::HostMemory::Buffer from_, to_;
  runtime::Contents made_, used_;
  runtime::RouteLegs legs_;
  runtime::RouteMemory places_;
};

/// Copies and messages of a route, to be run again without planning any of it.
struct Recording {
  struct Copy {
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
  };
  std::vector<Copy> before, after;  ///< the messages
  std::vector<runtime::SendRun> sends;
  std::vector<runtime::ReceiveRun> receives;
  bool exchanged = false;
};

/// Memory that notes what is copied in it.
struct RecordingMemory : runtime::HostMemory {
  Recording* recording;
  void copy(const std::byte* from, std::byte* to, std::size_t bytes) const {
    (recording->exchanged ? recording->after : recording->before).push_back({from, to, bytes});
  }
};

/// Transport that notes what is exchanged.
struct RecordingTransport {
  runtime::MpiTransport& mpi;
  Recording& recording;
  [[nodiscard]] std::uint32_t rank() const { return mpi.rank(); }
  [[nodiscard]] std::uint32_t ranks() const { return mpi.ranks(); }
  std::vector<std::string> all_gather(const std::string&, const std::string& mine) { return {mine}; }
  void all_to_all(const std::string&, std::span<const runtime::SendRun> sends,
                  std::span<const runtime::ReceiveRun> receives) {
    recording.sends.assign(sends.begin(), sends.end());
    recording.receives.assign(receives.begin(), receives.end());
    recording.exchanged = true;
  }
  void barrier(const std::string&) {}
  void abort(int exit_code) { mpi.abort(exit_code); }
};

/// One side of MPI_Alltoallv: what each peer's bytes begin with, from the lowest of all on.
template <class Byte>
struct Counts {
  Byte* data = nullptr;
  std::vector<int> bytes, offsets;

  template <class Run>
  Counts(const std::vector<Run>& runs, std::uint32_t ranks) : bytes(ranks, 0), offsets(ranks, 0) {
    for (const Run& run : runs) data = data == nullptr ? run.bytes.data() : std::min(data, run.bytes.data());
    for (const Run& run : runs) {
      bytes[run.peer] = static_cast<int>(run.bytes.size());
      offsets[run.peer] = static_cast<int>(run.bytes.data() - data);
    }
  }
};

/// Seconds until the slowest rank is done.
double timed(const std::function<void()>& act) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  act();
  const double mine = MPI_Wtime() - begin;
  double slowest = 0;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

/// Two ways of doing the same.
struct Pair {
  std::function<void()> runtime, alltoallv;
  std::vector<double> runtime_seconds, alltoallv_seconds, ratios;

  void take_turns(bool runtime_first) {
    const double first = timed(runtime_first ? runtime : alltoallv);
    const double second = timed(runtime_first ? alltoallv : runtime);
    runtime_seconds.push_back(runtime_first ? first : second);
    alltoallv_seconds.push_back(runtime_first ? second : first);
    ratios.push_back(alltoallv_seconds.back() / runtime_seconds.back());
  }

  [[nodiscard]] std::string json() const {
    std::array<char, 256> text{};
    std::snprintf(text.data(), text.size(),
                  "{\"runtime_seconds\": %.6g, \"alltoallv_seconds\": %.6g, \"throughput_ratio\": %.4g}",
                  median(runtime_seconds), median(alltoallv_seconds), median(ratios));
    return text.data();
  }
};

/// Throws Error if an element is not where it should be.
std::string measure(runtime::MpiTransport& transport, const char* name, Balancer balancer) {
  const StepPlan plan = step_plan(transport.ranks(), balancer);
  OutputRoute route(plan, transport.rank());
  Recording recording;
  RecordingMemory recording_memory;
  recording_memory.recording = &recording;
  RecordingTransport recording_transport{transport, recording};
  runtime::MessageBuffers<RecordingMemory> recorded;
  route.run(recording_transport, recording_memory, recorded);

  Counts<const std::byte> sends(recording.sends, transport.ranks());
  Counts<std::byte> receives(recording.receives, transport.ranks());
  const auto copy = [](const std::vector<Recording::Copy>& copies) {
    for (const Recording::Copy& c : copies) std::memcpy(c.to, c.from, c.bytes);
  };
  const auto alltoallv = [&] {
    MPI_Alltoallv(sends.data, sends.bytes.data(), sends.offsets.data(), MPI_BYTE, receives.data, receives.bytes.data(),
                  receives.offsets.data(), MPI_BYTE, MPI_COMM_WORLD);
  };
  runtime::HostMemory memory;
  runtime::MessageBuffers<runtime::HostMemory> buffers{std::move(recorded.send), std::move(recorded.receive)};
  Pair messages{[&] { transport.all_to_all(name, recording.sends, recording.receives); }, alltoallv, {}, {}, {}};
  Pair exchange{[&] { route.run(transport, memory, buffers); },
                [&] {
                  copy(recording.before);
                  alltoallv();
                  copy(recording.after);
                },
                {},
                {},
                {}};
  for (const auto& way : {exchange.runtime, exchange.alltoallv}) {  // and to warm up
    route.forget();
    way();
    if (const std::uint64_t wrong = route.wrong(); wrong > 0) {
      throw Error(std::to_string(wrong) + " elements are not what they should be", 1);
    }
  }
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (Pair* pair : {&messages, &exchange}) pair->take_turns(repetition % 2 == 0);
  }
  const std::uint64_t bytes = traffic(plan.routes.back(), plan.topology).moved_bytes();
  return " {\"layout\": \"" + std::string(name) + "\", \"ranks\": " + std::to_string(transport.ranks()) +
         ", \"bytes\": " + std::to_string(bytes) + ",\n  \"transport\": " + messages.json() +
         ",\n  \"exchange\": " + exchange.json() + "}";
}

}  // namespace

int main(int argc, char** argv) {
  runtime::MpiTransport transport(argc, argv, {});
  try {
    const std::string lpt = measure(transport, "lpt", Balancer::lpt);
    const std::string movement = measure(transport, "movement", Balancer::movement);
    if (transport.rank() == 0) std::printf("[\n%s,\n%s\n]\n", lpt.c_str(), movement.c_str());
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "bench_runtime: rank %u: %s\n", transport.rank(), error.what());
    transport.abort(1);
  }
}
