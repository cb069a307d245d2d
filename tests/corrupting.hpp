// A transport of which one bit that one rank receives is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/runtime/transport.hpp"

namespace orch::test {

/// Flips a bit of a byte of the first run in the n-th all-to-all in which rank `victim` receives anything.
template <runtime::Transport Inner>
class Corrupting {
 public:
  Corrupting(Inner& inner, std::uint32_t victim, std::uint64_t exchange, std::size_t byte)
      : inner_(inner), victim_(victim), exchange_(exchange), byte_(byte) {}

  [[nodiscard]] std::uint32_t rank() const { return inner_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const { return inner_.ranks(); }
  std::vector<std::string> all_gather(const std::string& what, const std::string& mine) {
    return inner_.all_gather(what, mine);
  }
  void all_to_all(const std::string& what, std::span<const runtime::SendRun> sends,
                  std::span<const runtime::ReceiveRun> receives) {
    inner_.all_to_all(what, sends, receives);
    if (rank() != victim_ || receives.empty()) return;
    if (seen_++ == exchange_) receives[0].bytes[byte_] ^= std::byte{1};
  }
  void barrier(const std::string& what) { inner_.barrier(what); }
  void abort(int code) { inner_.abort(code); }

 private:
  Inner& inner_;
  std::uint32_t victim_;
  std::uint64_t exchange_;
  std::size_t byte_;
  std::uint64_t seen_ = 0;
};

}  // namespace orch::test
