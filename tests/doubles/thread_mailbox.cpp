// Mailboxes of ranks that are threads of one process.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "mailbox.hpp"

namespace orch::test::nccl {

namespace {

/// Of one direction between two ranks.
struct Tray {
  std::deque<std::span<const std::byte>> put;
  std::uint64_t taken = 0;
};

/// What the mailboxes under one id share.
struct Hall {
  std::set<int> joined;
  std::map<std::pair<int, int>, Tray> trays;  ///< (from, to)
};

class ThreadMailbox final : public Mailbox {
 public:
  ThreadMailbox(std::shared_ptr<Hall> hall, int rank, int ranks) : hall_(std::move(hall)), rank_(rank), ranks_(ranks) {}
  ~ThreadMailbox() override {
    for (int peer = 0; peer < ranks_; ++peer) tray_to(peer).put.clear();
  }

  void look() override {}
  [[nodiscard]] bool complete() const override { return static_cast<int>(hall_->joined.size()) == ranks_; }
  [[nodiscard]] bool lost(int) const override { return false; }
  void put(int peer, std::span<const std::byte> bytes) override { tray_to(peer).put.push_back(bytes); }
  [[nodiscard]] std::uint64_t taken_by(int peer) const override { return tray_to(peer).taken; }
  [[nodiscard]] std::optional<std::size_t> next_from(int peer) const override {
    const Tray& tray = tray_from(peer);
    if (tray.put.empty()) return std::nullopt;
    return tray.put.front().size();
  }
  void take(int peer, std::byte* to) override {
    Tray& tray = tray_from(peer);
    std::memcpy(to, tray.put.front().data(), tray.put.front().size());
    tray.put.pop_front();
    ++tray.taken;
  }

 private:
  [[nodiscard]] Tray& tray_to(int peer) const { return hall_->trays[{rank_, peer}]; }
  [[nodiscard]] Tray& tray_from(int peer) const { return hall_->trays[{peer, rank_}]; }

  std::shared_ptr<Hall> hall_;
  int rank_;
  int ranks_;
};

}  // namespace

std::unique_ptr<Mailbox> open_mailbox(const std::string& id, int rank, int ranks) {
  static std::map<std::string, std::weak_ptr<Hall>> halls;
  std::shared_ptr<Hall> hall = halls[id].lock();
  if (!hall) halls[id] = hall = std::make_shared<Hall>();
  if (!hall->joined.insert(rank).second) return nullptr;
  return std::make_unique<ThreadMailbox>(std::move(hall), rank, ranks);
}

Rules standing_rules() { return {}; }

}  // namespace orch::test::nccl
