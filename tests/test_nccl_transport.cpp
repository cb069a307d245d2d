// The NCCL transport and the executor on device memory, with doubles in the place of NCCL and the GPU: ranks are
// threads. Every send has its receive, nothing is sent outside of groups, no group is too large, and a peer that
// stalls, dies or fails ends all ranks with its name.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "corrupting.hpp"
#include "doubles/device_double.hpp"
#include "doubles/nccl_double.hpp"
#include "orchmllm/base/hash.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/runtime/agreement.hpp"
#include "orchmllm/runtime/device_memory.hpp"
#include "orchmllm/runtime/executor.hpp"
#include "orchmllm/runtime/message_groups.hpp"
#include "orchmllm/runtime/nccl_transport.hpp"
#include "property.hpp"
#include "steps.hpp"
#include "thread_transport.hpp"

using namespace orch;
using namespace orch::runtime;
using namespace std::chrono_literals;
using test::ThreadHub;
using test::ThreadTransport;
namespace nccl = test::nccl;
namespace gpu = test::gpu;

namespace {

/// What the control planes of one job share.
struct Board {
  std::mutex mutex;
  std::map<std::uint32_t, std::pair<std::uint64_t, std::string>> waiting;  ///< rank → times it attended, for what
  std::vector<std::pair<std::uint32_t, std::string>> gave_up;
};

/// A control plane between threads.
class ThreadControl final : public ControlPlane {
 public:
  ThreadControl(ThreadHub& hub, Board& board, std::uint32_t rank) : transport_(hub, rank), board_(board) {}

  [[nodiscard]] std::uint32_t rank() const override { return transport_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const override { return transport_.ranks(); }
  [[nodiscard]] std::string host() const override { return "here"; }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& what, const std::string& mine) override {
    return transport_.all_gather(what, mine);
  }
  void barrier(const std::string& what) override { transport_.barrier(what); }
  void attend(const std::string& text) override {
    const std::scoped_lock lock(board_.mutex);
    auto& [times, last] = board_.waiting[rank()];
    ++times;
    last = text;
    for (const auto& [other, why] : board_.gave_up) {
      if (other != rank()) throw TransportError("rank " + std::to_string(other) + " gave up: " + why);
    }
  }
  [[nodiscard]] std::string ask_around(const std::string& text) override {
    std::map<std::uint32_t, std::uint64_t> before;
    for (int i = 0; i < 30; ++i) {
      {
        const std::scoped_lock lock(board_.mutex);
        board_.waiting[rank()].first += 1;
        board_.waiting[rank()].second = text;
        if (i == 0) {
          for (const auto& [other, said] : board_.waiting) before[other] = said.first;
        }
      }
      std::this_thread::sleep_for(10ms);
    }
    const std::scoped_lock lock(board_.mutex);
    std::set<std::uint32_t> silent;
    std::string said;
    for (std::uint32_t other = 0; other < ranks(); ++other) {
      if (other == rank()) continue;
      if (board_.waiting[other].first == before[other]) {
        silent.insert(other);
      } else {
        said += "; rank " + std::to_string(other) + ": " + board_.waiting[other].second;
      }
    }
    return (silent.empty() ? "; every rank answers" : "; no answer from " + ranks_text(silent)) + said;
  }
  void give_up(const std::string& why) noexcept override {
    const std::scoped_lock lock(board_.mutex);
    board_.gave_up.emplace_back(rank(), why);
  }
  [[noreturn]] void abort(int) override { std::abort(); }

 private:
  ThreadTransport transport_;
  Board& board_;
};

/// One rank's own: a device, its queue, the transport.
struct Rank {
  Rank(ThreadHub& hub, Board& board, std::uint32_t rank, const NcclOptions& options) : control(hub, board, rank) {
    device::select(static_cast<int>(rank));
    queue = std::make_unique<device::Queue>();
    transport = std::make_unique<NcclTransport>(control, *queue, options);
  }
  ThreadControl control;
  std::unique_ptr<device::Queue> queue;
  std::unique_ptr<NcclTransport> transport;
};

/// What each rank threw; empty where it did not.
template <class Body>
std::vector<std::string> on_ranks(std::uint32_t ranks, const NcclOptions& options, Body&& body) {
  ThreadHub hub(ranks, 20s);
  Board board;
  std::vector<std::string> errors(ranks);
  test::on_ranks(hub, [&](std::uint32_t rank) {
    try {
      Rank mine(hub, board, rank, options);
      body(mine, rank);
    } catch (const std::exception& error) {
      errors[rank] = error.what();
    }
  });
  return errors;
}

/// number of run → bytes, the same on both sides.
using Sizes = std::vector<std::vector<std::vector<std::size_t>>>;  // from → to → number

Sizes any_sizes(std::uint32_t ranks) {
  Sizes sizes(ranks, std::vector<std::vector<std::size_t>>(ranks));
  for (auto& from : sizes) {
    for (auto& to : from) {
      const auto kinds = rc::gen::oneOf(rc::gen::just<std::size_t>(0), rc::gen::inRange<std::size_t>(0, 100),
                                        rc::gen::inRange<std::size_t>(0, 9000));
      to = *rc::gen::container<std::vector<std::size_t>>(*rc::gen::inRange<std::size_t>(0, 4), kinds);
    }
  }
  return sizes;
}

std::byte content(std::uint32_t from, std::uint32_t to, std::size_t number, std::size_t at) {
  return static_cast<std::byte>(mix64(from * 1000003 + to * 10007 + number * 101 + at) & 0xffU);
}

/// Device memory and runs of one rank's part of an exchange.
struct Runs {
  Runs(const Sizes& sizes, std::uint32_t rank, DeviceAllocator& allocator) {
    const auto ranks = static_cast<std::uint32_t>(sizes.size());
    std::size_t out = 0;
    std::size_t in = 0;
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      for (const std::size_t bytes : sizes[rank][peer]) out += bytes;
      for (const std::size_t bytes : sizes[peer][rank]) in += bytes;
    }
    std::span<std::byte> send = send_memory.of(out + 1, allocator);
    std::span<std::byte> receive = receive_memory.of(in + 1, allocator);
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      for (std::size_t number = 0; number < sizes[rank][peer].size(); ++number) {
        const std::size_t bytes = sizes[rank][peer][number];
        for (std::size_t i = 0; i < bytes; ++i) send[i] = content(rank, peer, number, i);
        sends.push_back({peer, static_cast<std::uint32_t>(number), send.first(bytes)});
        send = send.subspan(bytes);
      }
      for (std::size_t number = 0; number < sizes[peer][rank].size(); ++number) {
        const std::size_t bytes = sizes[peer][rank][number];
        receives.push_back({peer, static_cast<std::uint32_t>(number), receive.first(bytes)});
        receive = receive.subspan(bytes);
      }
    }
  }

  [[nodiscard]] bool right(std::uint32_t rank) const {
    return std::all_of(receives.begin(), receives.end(), [&](const ReceiveRun& run) {
      for (std::size_t i = 0; i < run.bytes.size(); ++i) {
        if (run.bytes[i] != content(run.peer, rank, run.number, i)) return false;
      }
      return true;
    });
  }

  DeviceBuffer send_memory, receive_memory;
  std::vector<SendRun> sends;
  std::vector<ReceiveRun> receives;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Two runs from every rank to every other.
Sizes plain_sizes(std::uint32_t ranks, std::size_t bytes) {
  Sizes sizes(ranks, std::vector<std::vector<std::size_t>>(ranks));
  for (std::uint32_t from = 0; from < ranks; ++from) {
    for (std::uint32_t to = 0; to < ranks; ++to) {
      if (from != to) sizes[from][to] = {bytes, bytes / 2};
    }
  }
  return sizes;
}

}  // namespace

TEST_CASE("both ends of any pair cut its bytes alike, and no group is too large") {
  test::check_property("message groups", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 9);
    const Sizes sizes = any_sizes(ranks);
    const auto limit = *rc::gen::inRange<std::uint64_t>(4096, 20000);
    const auto slice = *rc::gen::inRange<std::uint64_t>(1, 5000);
    std::vector<std::byte> memory(9000);
    using Parts = std::vector<std::pair<std::uint32_t, std::size_t>>;  // number of run, bytes
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>, std::array<Parts, 2>> parts;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> moved;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      std::vector<SendRun> sends;
      std::vector<ReceiveRun> receives;
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        for (std::uint32_t n = 0; n < sizes[rank][peer].size(); ++n) {
          sends.push_back({peer, n, std::span(memory).first(sizes[rank][peer][n])});
        }
        for (std::uint32_t n = 0; n < sizes[peer][rank].size(); ++n) {
          receives.push_back({peer, n, std::span(memory).first(sizes[peer][rank][n])});
        }
      }
      std::uint64_t last = 0;
      bool first = true;
      for (const MessageGroup& group : message_groups(rank, ranks, sends, receives, limit, slice)) {
        RC_ASSERT(first || group.number > last);
        first = false;
        last = group.number;
        std::uint64_t bytes = 0;
        for (const SendRun& run : group.sends) {
          RC_ASSERT(!run.bytes.empty());
          bytes += run.bytes.size();
          moved[{rank, run.peer}] += run.bytes.size();
          parts[{rank, run.peer, group.number}][0].emplace_back(run.number, run.bytes.size());
        }
        for (const ReceiveRun& run : group.receives) {
          bytes += run.bytes.size();
          parts[{run.peer, rank, group.number}][1].emplace_back(run.number, run.bytes.size());
        }
        RC_ASSERT(bytes > 0U);
        RC_ASSERT(bytes <= limit);
      }
    }
    for (const auto& [key, sides] : parts) RC_ASSERT(sides[0] == sides[1]);
    for (std::uint32_t from = 0; from < ranks; ++from) {
      for (std::uint32_t to = 0; to < ranks; ++to) {
        std::size_t bytes = 0;
        for (const std::size_t size : sizes[from][to]) bytes += from == to ? 0 : size;
        const auto found = moved.find({from, to});
        RC_ASSERT(bytes == (found == moved.end() ? 0U : found->second));
      }
    }
  });
}

TEST_CASE("small exchanges are one group; few big pairs among many ranks are few") {
  std::vector<std::byte> memory(std::size_t{1} << 20U);
  std::vector<SendRun> sends;
  for (std::uint32_t peer = 1; peer < 64; ++peer) sends.push_back({peer, 0, std::span(memory).first(1000)});
  CHECK(message_groups(0, 64, sends, {}, 1U << 20U, 1U << 16U).size() == 1);
  sends = {{5, 0, memory}};
  CHECK(message_groups(0, 64, sends, {}, 1U << 20U, 1U << 16U).size() == 16);
}

TEST_CASE("any exchange arrives; the rules of NCCL are kept") {
  test::check_property("exchange over NCCL", [] {
    const auto ranks = *rc::gen::inRange<std::uint32_t>(1, 6);
    const std::array<Sizes, 2> rounds{any_sizes(ranks), any_sizes(ranks)};
    const NcclOptions options{.timeout = 20s,
                              .group_bytes = *rc::gen::inRange<std::size_t>(4096, 30000),
                              .slice_bytes = *rc::gen::inRange<std::size_t>(100, 9000)};
    nccl::reset({.group_bytes = options.group_bytes, .registered_only = true});
    std::atomic<std::uint32_t> right{0};
    std::vector<NcclMemory> memory(ranks);
    const auto errors = on_ranks(ranks, options, [&](Rank& mine, std::uint32_t rank) {
      for (const Sizes& sizes : rounds) {
        Runs runs(sizes, rank, *mine.transport);
        mine.queue->ready.record(mine.queue->stream);
        mine.transport->all_to_all("step 0", runs.sends, runs.receives);
        if (runs.right(rank)) ++right;
        memory[rank] = mine.transport->memory();
      }
      RC_ASSERT(mine.transport->memory().registered_bytes == 0U);
      mine.transport->barrier("end");
    });
    for (const std::string& error : errors) RC_ASSERT(error == "");
    RC_ASSERT(right == 2 * ranks);
    const nccl::Record record = nccl::record();
    RC_ASSERT(record.violations == std::vector<std::string>());
    RC_ASSERT(record.left.size() == ranks);
    RC_ASSERT(record.taken == record.messages);
    std::uint64_t bytes = 0;
    for (std::uint32_t from = 0; from < ranks; ++from) {
      std::set<std::uint32_t> peers;
      for (std::uint32_t to = 0; to < ranks; ++to) {
        for (const Sizes& sizes : rounds) {
          for (const std::size_t size : sizes[from][to]) bytes += from == to ? 0 : size;
          for (const auto& run : {sizes[from][to], sizes[to][from]}) {
            if (from != to && std::any_of(run.begin(), run.end(), [](std::size_t size) { return size > 0; })) {
              peers.insert(to);
            }
          }
        }
      }
      RC_ASSERT(memory[from].peers == peers.size());
      RC_ASSERT(memory[from].peer_bytes == peers.size() << 16U);
      RC_ASSERT(memory[from].communicator_bytes == 1U << 20U);
    }
    RC_ASSERT(record.bytes == bytes);
    RC_ASSERT(gpu::allocations() == 0U);
  });
}

TEST_CASE("messages are read when the queue's event is there, not before") {
  nccl::reset();
  constexpr std::size_t bytes = 1000;
  Sizes sizes = plain_sizes(2, bytes);
  sizes[0][1] = sizes[1][0] = {bytes};
  std::atomic<int> right{0};
  const auto errors = on_ranks(2, {}, [&](Rank& mine, std::uint32_t rank) {
    Runs runs(sizes, rank, *mine.transport);
    DeviceBuffer unpacked_memory;
    std::byte* unpacked = unpacked_memory.of(bytes, PlainAllocator::instance()).data();
    std::byte* message = runs.send_memory.of(bytes, *mine.transport).data();
    std::copy_n(message, bytes, unpacked);
    std::fill_n(message, bytes, std::byte{0});
    device::copy(message, unpacked, bytes, mine.queue->stream);
    mine.queue->ready.record(mine.queue->stream);
    mine.transport->all_to_all("step 0", runs.sends, runs.receives);
    right += runs.right(rank) ? 1 : 0;
    mine.transport->barrier("end");
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(right == 2);
}

TEST_CASE("where one rank cannot register, no rank does: memory is the device's own") {
  nccl::reset();
  nccl::refuse_registration(1);
  const Sizes sizes = plain_sizes(2, 1000);
  std::atomic<int> right{0};
  const auto errors = on_ranks(2, {}, [&](Rank& mine, std::uint32_t rank) {
    Runs runs(sizes, rank, *mine.transport);
    mine.transport->all_to_all("step 0", runs.sends, runs.receives);
    right += runs.right(rank) ? 1 : 0;
    CHECK(mine.transport->memory().registered_bytes == 0);
    mine.transport->barrier("end");
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(right == 2);
  CHECK(nccl::record().violations.empty());
}

TEST_CASE("the executor on device memory over NCCL: every element of any plan arrives, there and back") {
  test::check_property("executor over NCCL", [] {
    const Mllm model = test::tiny_graph();
    const test::Step step = test::any_step(model, test::tiny_lengths(model));
    const StepPlan plan = test::plan_of(step, test::any_options());
    const std::uint32_t ranks = step.topology.ranks();
    const auto verify = *rc::gen::element(Verify::full, Verify::sample, Verify::off);
    ThreadHub hub(ranks);
    std::vector<StepReport> expected(ranks);
    test::on_ranks(hub, [&](std::uint32_t rank) {
      ThreadTransport transport(hub, rank);
      Executor executor(transport, {.verify = verify, .seed = 3});
      expected[rank] = executor.run(0, plan, rank_view(plan, rank));
    });
    nccl::reset({.group_bytes = 4096, .registered_only = true});
    std::vector<StepReport> reports(ranks);
    const auto errors = on_ranks(ranks, {.group_bytes = 4096, .slice_bytes = 512}, [&](Rank& mine, std::uint32_t rank) {
      Executor executor(*mine.transport, {.verify = verify, .seed = 3}, DeviceMemory(*mine.queue, *mine.transport));
      for (std::uint64_t s = 0; s < 2; ++s) reports[rank] = executor.run(s, plan, rank_view(plan, rank));
    });
    for (const std::string& error : errors) RC_ASSERT(error == "");
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      RC_ASSERT(reports[rank].mismatches == 0U);
      RC_ASSERT(reports[rank].verified_bytes == expected[rank].verified_bytes);
      RC_ASSERT(reports[rank].exchange.sent_bytes == expected[rank].exchange.sent_bytes);
      RC_ASSERT(reports[rank].exchange.received_bytes == expected[rank].exchange.received_bytes);
      RC_ASSERT(reports[rank].exchange.messages == expected[rank].exchange.messages);
    }
    RC_ASSERT(nccl::record().violations == std::vector<std::string>());
    RC_ASSERT(nccl::record().taken == nccl::record().messages);
    RC_ASSERT(gpu::allocations() == 0U);
  });
}

TEST_CASE("a wrong bit on the device is named in the words of the host") {
  const StepPlan plan = test::plan_of(test::small_step(), test::balancers(Balancer::home, Balancer::lpt));
  std::array<StepReport, 2> expected;
  ThreadHub hub(2);
  test::on_ranks(hub, [&](std::uint32_t rank) {
    ThreadTransport transport(hub, rank);
    test::Corrupting corrupting(transport, 1, 0, 17);
    expected[rank] = Executor(corrupting, ExecutorOptions{}).run(0, plan, rank_view(plan, rank));
  });
  nccl::reset();
  std::array<StepReport, 2> reports;
  const auto errors = on_ranks(2, {}, [&](Rank& mine, std::uint32_t rank) {
    test::Corrupting corrupting(*mine.transport, 1, 0, 17);
    Executor executor(corrupting, ExecutorOptions{}, DeviceMemory(*mine.queue, *mine.transport));
    reports[rank] = executor.run(0, plan, rank_view(plan, rank));
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(reports[1].mismatches == 1);
  REQUIRE(reports[1].examples.size() == 1);
  CHECK(reports[1].examples == expected[1].examples);
}

TEST_CASE("node-first exchanges meet few peers: their buffers do not grow with all ranks") {
  Mllm model = test::plain_model();
  model.encoders.resize(1);
  std::vector<Sample> samples;
  for (std::uint64_t i = 0; i < 64; ++i) samples.push_back(test::counted(static_cast<std::uint32_t>(3 + i % 7)));
  const test::Step step{model, test::lengths_of(model, samples), uniform_topology(16, 4), {}, {}};
  test::Step all = step;
  for (std::uint32_t i = 0; i < 64; ++i) {
    all.samples.push_back(i);
    all.home.push_back(i / 4);
  }
  StepOptions options = test::balancers(Balancer::lpt, Balancer::lpt);
  for (const auto& [schedule, most] :
       {std::pair(ExchangeSchedule::direct, 15U), std::pair(ExchangeSchedule::hierarchical, 3U + 3U)}) {
    options.schedule = schedule;
    const StepPlan plan = test::plan_of(all, options);
    nccl::reset();
    std::uint32_t peers = 0;
    std::mutex mutex;
    const auto errors = on_ranks(16, {}, [&](Rank& mine, std::uint32_t rank) {
      Executor executor(*mine.transport, {.verify = Verify::full}, DeviceMemory(*mine.queue, *mine.transport));
      CHECK(executor.run(0, plan, rank_view(plan, rank)).mismatches == 0);
      const std::scoped_lock lock(mutex);
      peers = std::max(peers, mine.transport->memory().peers);
    });
    CHECK(errors == std::vector<std::string>(16));
    CHECK(peers <= most);
    CHECK(peers > (schedule == ExchangeSchedule::direct ? 6U : 0U));
  }
}

TEST_CASE("a rank that does not come to the exchange is named on all others, and their communicators are aborted") {
  nccl::reset();
  const Sizes sizes = plain_sizes(3, 3000);
  const auto errors = on_ranks(3, {.timeout = 300ms}, [&](Rank& mine, std::uint32_t rank) {
    if (rank == 1) std::this_thread::sleep_for(3s);
    if (rank == 1) return;
    Runs runs(sizes, rank, PlainAllocator::instance());
    mine.transport->all_to_all("step 3, exchange home -> llm", runs.sends, runs.receives);
  });
  for (const std::uint32_t rank : {0U, 2U}) {
    CAPTURE(errors[rank]);
    CHECK(has(errors[rank], "step 3, exchange home -> llm: waits for "));
    CHECK(has(errors[rank], "4500 bytes from rank 1"));
    CHECK(has(errors[rank], "no answer from rank 1"));
  }
  CHECK((has(errors[0], "in vain for 0.3 s") || has(errors[2], "in vain for 0.3 s")));
  auto aborted = nccl::record().aborted;
  std::sort(aborted.begin(), aborted.end());
  CHECK(aborted == std::vector<int>{0, 2});
  CHECK(nccl::record().violations.empty());
}

TEST_CASE("messages of a rank that do not get through end the wait on all ranks") {
  nccl::reset();
  nccl::stall_at(2, 1);
  const Sizes sizes = plain_sizes(3, 3000);
  const auto errors = on_ranks(3, {.timeout = 300ms}, [&](Rank& mine, std::uint32_t rank) {
    Runs runs(sizes, rank, PlainAllocator::instance());
    mine.transport->all_to_all("step 0", runs.sends, runs.receives);
    mine.transport->barrier("between");
    mine.transport->all_to_all("step 1", runs.sends, runs.receives);
  });
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    CAPTURE(errors[rank]);
    CHECK(has(errors[rank], "step 1: waits for "));
    CHECK(has(errors[rank], "every rank answers"));
    if (rank != 2) CHECK(has(errors[rank], "4500 bytes from rank 2"));
  }
  CHECK(nccl::record().aborted.size() == 3);
}

TEST_CASE("an asynchronous error of one communicator ends all ranks with its words") {
  nccl::reset();
  nccl::fail_at(1, 0);
  nccl::stall_at(1, 0);
  const Sizes sizes = plain_sizes(3, 3000);
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = on_ranks(3, {.timeout = 20s}, [&](Rank& mine, std::uint32_t rank) {
    Runs runs(sizes, rank, PlainAllocator::instance());
    mine.transport->all_to_all("step 0", runs.sends, runs.receives);
  });
  const std::string words =
      "NCCL: remote process exited or there was a network error (connection closed by remote peer)";
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    CAPTURE(errors[rank]);
    CHECK(has(errors[rank], words));
    CHECK(has(errors[rank], "rank 1 gave up: step 0") == (rank != 1));
  }
  CHECK(nccl::record().aborted.size() == 3);
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
}

TEST_CASE("an abort that does not come back is left alone, and memory that may still be in use is not released") {
  nccl::reset();
  nccl::fail_at(1, 0);
  nccl::hang_abort(1);
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = on_ranks(2, {}, [&](Rank& mine, std::uint32_t rank) {
    const Sizes sizes = plain_sizes(2, 1000);
    Runs runs(sizes, rank, *mine.transport);
    mine.transport->all_to_all("step 0", runs.sends, runs.receives);
  });
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(7));
  for (const std::string& error : errors) CHECK(has(error, "step 0"));
  std::this_thread::sleep_for(std::chrono::seconds(3));  // the abort's own thread
  CHECK(device::memory_is_left());
  CHECK(gpu::take_memory_back() > 0);
}

TEST_CASE("sides that state different sizes wait in vain, and both sizes are said") {
  nccl::reset();
  const auto errors = on_ranks(2, {.timeout = 300ms}, [&](Rank& mine, std::uint32_t rank) {
    Sizes sizes = plain_sizes(2, 0);
    sizes[0][1] = {rank == 0 ? 10U : 20U};
    sizes[1][0] = {};
    Runs runs(sizes, rank, PlainAllocator::instance());
    mine.transport->all_to_all("short", runs.sends, runs.receives);
  });
  for (const std::string& error : errors) {
    CAPTURE(error);
    CHECK(has(error, "taking of 10 bytes by rank 1"));
    CHECK(has(error, "20 bytes from rank 0"));
  }
  CHECK(nccl::record().violations == std::vector<std::string>{"rank 0 sends 10 bytes, rank 1 receives 20"});
}

TEST_CASE("ranks with one GPU, an old NCCL or different ones are told so before they join") {
  nccl::reset();
  ThreadHub hub(3);
  Board board;
  std::vector<std::string> errors(3);
  test::on_ranks(hub, [&](std::uint32_t rank) {
    device::select(rank == 2 ? 0 : static_cast<int>(rank));
    ThreadControl control(hub, board, rank);
    device::Queue queue;
    try {
      NcclTransport transport(control, queue, {});
    } catch (const AgreedError& error) {
      errors[rank] = error.what();
    }
  });
  for (const std::string& error : errors) CHECK(has(error, "ranks 0 and 2 have one GPU (here, GPU bus 0, boot "));

  nccl::reset();
  nccl::set_version(1, 22703);
  errors = on_ranks(3, {}, [](Rank&, std::uint32_t) {});
  for (const std::string& error : errors) {
    CHECK(error == "NCCL's version differs between ranks: 2.28.0 on ranks 0 and 2, but 2.27.3 on rank 1");
  }
  nccl::reset();
  nccl::set_version(0, 21705);
  errors = on_ranks(1, {}, [](Rank&, std::uint32_t) {});
  CHECK(errors[0] == "NCCL 2.17.5: 2.18 or later is needed");
  CHECK(nccl::record().violations.empty());
}
