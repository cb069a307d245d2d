// A transport between threads of one process: every rank is a thread. Waits are bounded as in the real ones.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "orchmllm/base/error.hpp"
#include "orchmllm/runtime/transport.hpp"

namespace orch::test {

/// What the ranks of one job share.
struct ThreadHub {
  explicit ThreadHub(std::uint32_t count, std::chrono::milliseconds limit = std::chrono::seconds(20))
      : ranks(count), timeout(limit), gathered(count), calls(count, 0) {}

  std::uint32_t ranks;
  std::chrono::milliseconds timeout;
  std::mutex mutex;
  std::condition_variable changed;
  bool aborted = false;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::vector<std::vector<std::byte>>> messages;
  std::vector<std::map<std::uint64_t, std::string>> gathered;  ///< rank → call → text
  std::vector<std::uint64_t> calls;
  std::uint64_t bytes = 0;  ///< sent between ranks
  std::uint64_t messages_sent = 0;
};

class ThreadTransport {
 public:
  ThreadTransport(ThreadHub& hub, std::uint32_t rank) : hub_(hub), rank_(rank) {}

  [[nodiscard]] std::uint32_t rank() const { return rank_; }
  [[nodiscard]] std::uint32_t ranks() const { return hub_.ranks; }

  std::vector<std::string> all_gather(const std::string& what, const std::string& mine) {
    std::unique_lock lock(hub_.mutex);
    const std::uint64_t call = hub_.calls[rank_]++;
    hub_.gathered[rank_][call] = mine;
    hub_.changed.notify_all();
    std::vector<std::string> texts;
    for (std::uint32_t peer = 0; peer < hub_.ranks; ++peer) {
      wait(lock, what, peer, [&] { return hub_.gathered[peer].count(call) > 0; });
      texts.push_back(hub_.gathered[peer][call]);
    }
    return texts;
  }

  void all_to_all(const std::string& what, std::span<const runtime::SendRun> sends,
                  std::span<const runtime::ReceiveRun> receives) {
    std::unique_lock lock(hub_.mutex);
    for (const runtime::SendRun& run : sends) {
      hub_.messages[{rank_, run.peer, run.number}].emplace_back(run.bytes.begin(), run.bytes.end());
      hub_.bytes += run.bytes.size();
      ++hub_.messages_sent;
    }
    hub_.changed.notify_all();
    for (const runtime::ReceiveRun& run : receives) {
      auto& queue = hub_.messages[{run.peer, rank_, run.number}];
      wait(lock, what, run.peer, [&] { return !queue.empty(); });
      if (queue.front().size() != run.bytes.size()) throw TransportError(what + ": a message of another size");
      std::copy(queue.front().begin(), queue.front().end(), run.bytes.begin());
      queue.erase(queue.begin());
    }
  }

  void barrier(const std::string& what) { static_cast<void>(all_gather(what, "")); }

  void abort(int) {
    const std::scoped_lock lock(hub_.mutex);
    hub_.aborted = true;
    hub_.changed.notify_all();
  }

 private:
  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, const std::string& what, std::uint32_t peer, Ready&& ready) {
    const bool came = hub_.changed.wait_for(lock, hub_.timeout, [&] { return hub_.aborted || ready(); });
    if (came && ready()) return;
    throw TransportError(what + ": awaited rank " + std::to_string(peer));
  }

  ThreadHub& hub_;
  std::uint32_t rank_;
};

static_assert(runtime::Transport<ThreadTransport>);

/// Runs `body(rank)` on a thread for every rank; rethrows what the first rank threw.
template <class Body>
void on_ranks(ThreadHub& hub, Body&& body) {
  std::vector<std::exception_ptr> errors(hub.ranks);
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < hub.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[rank] = std::current_exception();
        ThreadTransport(hub, rank).abort(1);
      }
    });
  }
  for (std::jthread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace orch::test
