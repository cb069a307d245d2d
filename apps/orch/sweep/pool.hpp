// Runs points on threads of this process, one a thread. Called from one thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace orch::sweep {

struct Finished {
  std::size_t point = 0;
  std::string line;  ///< its result
};

class Pool {
 public:
  /// `run` is called from several threads and must not throw.
  Pool(std::size_t jobs, std::function<std::string(std::size_t)> run) : jobs_(jobs), run_(std::move(run)) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  /// Waits for what runs.
  ~Pool() {
    for (auto& [point, thread] : threads_) thread.join();
  }

  [[nodiscard]] std::size_t idle() const { return jobs_ - threads_.size(); }

  /// Nothing if it runs already.
  void start(std::size_t point) {
    if (threads_.contains(point)) return;
    threads_.emplace(point, [this, point] {
      Finished result{point, run_(point)};
      const std::lock_guard lock(mutex_);
      finished_.push_back(std::move(result));
      one_finished_.notify_one();
    });
  }

  /// What has finished since the last call; waits a while for something.
  [[nodiscard]] std::vector<Finished> finished(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    one_finished_.wait_for(lock, patience, [this] { return !finished_.empty(); });
    std::vector<Finished> result = std::exchange(finished_, {});
    lock.unlock();
    for (const Finished& one : result) {
      threads_.at(one.point).join();
      threads_.erase(one.point);
    }
    return result;
  }

 private:
  std::size_t jobs_;
  std::function<std::string(std::size_t)> run_;
  std::map<std::size_t, std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable one_finished_;
  std::vector<Finished> finished_;
};

}  // namespace orch::sweep
