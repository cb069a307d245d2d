// Prefetching planner: plans step t + 1 while step t runs.
//
// A thread of its own calls `produce(t)` for t = 0, 1, … and keeps at most `depth` results ahead of the consumer, who
// takes them in order with next(). An exception in produce() reaches the consumer at the step it belongs to, and ends
// the stream. The destructor cancels: a producer that waits is woken, one that is planning finishes its step.
// Complexity: one queue operation a step. Thread-safe for one consumer.
//
//   orch::Prefetcher<orch::StepPlan> plans([&](std::uint64_t t) { return plan(t); }, steps, 2);
//   while (auto plan = plans.next()) train(*plan);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "orchmllm/base/error.hpp"

namespace orch {

template <class Result>
class Prefetcher {
 public:
  using Produce = std::function<Result(std::uint64_t step)>;

  /// Throws InvalidInput for a depth of 0.
  Prefetcher(Produce produce, std::uint64_t steps, std::size_t depth = 1)
      : produce_(std::move(produce)), steps_(steps), depth_(depth) {
    if (depth == 0) throw InvalidInput("a prefetching planner needs a depth of at least 1");
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next step's result, waiting for it if need be; nothing after the last. Rethrows what produce() threw.
  [[nodiscard]] std::optional<Result> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !ready_.empty() || finished_; });
    if (ready_.empty()) {
      if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
      return std::nullopt;
    }
    std::optional<Result> result(std::move(ready_.front()));
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return result;
  }

 private:
  void run(const std::stop_token& stop) {
    for (std::uint64_t step = 0; step < steps_; ++step) {
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [&] { return ready_.size() < depth_; })) break;
      }
      if (stop.stop_requested()) break;
      try {
        Result result = produce_(step);
        const std::scoped_lock lock(mutex_);
        ready_.push_back(std::move(result));
      } catch (...) {
        const std::scoped_lock lock(mutex_);
        error_ = std::current_exception();
        break;
      }
      changed_.notify_all();
    }
    {
      const std::scoped_lock lock(mutex_);
      finished_ = true;
    }
    changed_.notify_all();
  }

  Produce produce_;
  std::uint64_t steps_;
  std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Result> ready_;
  std::exception_ptr error_;
  bool finished_ = false;
  std::jthread thread_;  ///< last: it must stop before what it uses goes away
};

}  // namespace orch
