// What a rank waits for, in the words of errors: "4096 bytes from rank 2; taking of 10 bytes by rank 3".
// Complexity: O(messages).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace orch::runtime {

/// A message of one call.
struct Message {
  std::uint32_t peer = 0;
  std::size_t bytes = 0;
  bool incoming = false;
  bool done = false;
};

/// Of messages that are not done; "all ranks" where there are none, as for collectives.
[[nodiscard]] inline std::string awaited_text(std::span<const Message> messages) {
  constexpr std::size_t most = 8;
  std::map<std::uint32_t, std::size_t> incoming;
  std::map<std::uint32_t, std::size_t> outgoing;
  for (const Message& message : messages) {
    if (!message.done) (message.incoming ? incoming : outgoing)[message.peer] += message.bytes;
  }
  std::string text;
  const auto list = [&](const std::map<std::uint32_t, std::size_t>& bytes_of, const char* before, const char* by) {
    std::size_t listed = 0;
    for (const auto& [peer, bytes] : bytes_of) {
      text += listed == 0 ? (text.empty() ? before : std::string("; ") + before) : ", ";
      if (listed++ == most) {
        text += std::string(by) + std::to_string(bytes_of.size() - most) + " more ranks";
        return;
      }
      text += std::to_string(bytes) + " bytes " + by + "rank " + std::to_string(peer);
    }
  };
  list(incoming, "", "from ");
  list(outgoing, "taking of ", "by ");
  return text.empty() ? "all ranks" : text;
}

[[nodiscard]] inline std::string waiting_text(const std::string& what, std::span<const Message> messages) {
  return what + ": waits for " + awaited_text(messages);
}

/// "2.0 s"
[[nodiscard]] inline std::string seconds_text(double seconds) {
  const std::string text = std::to_string(seconds);
  return text.substr(0, text.find('.') + 2) + " s";
}

}  // namespace orch::runtime
