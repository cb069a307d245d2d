// Random access to the bytes of a file or of a member of a shard.
//
// Reading never throws: it is called from inside C libraries. What cannot be read (beyond the end, a disk error, bytes
// that a shard's member did not keep) is an early end, which the readers of headers report as a corrupt member.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace orch::scan {

class Bytes {
 public:
  Bytes() = default;
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  virtual ~Bytes() = default;

  [[nodiscard]] virtual std::uint64_t size() const noexcept = 0;
  /// Copies bytes from position `at` on; returns how many, 0 where there are none.
  [[nodiscard]] virtual std::size_t read(std::uint64_t at, std::span<char> to) noexcept = 0;
};

/// Bytes in memory; the caller keeps them alive.
class MemoryBytes final : public Bytes {
 public:
  explicit MemoryBytes(std::string_view bytes) : bytes_(bytes) {}
  [[nodiscard]] std::uint64_t size() const noexcept override { return bytes_.size(); }
  [[nodiscard]] std::size_t read(std::uint64_t at, std::span<char> to) noexcept override {
    if (at >= bytes_.size()) return 0;
    const std::string_view part = bytes_.substr(static_cast<std::size_t>(at), to.size());
    if (!part.empty()) std::memcpy(to.data(), part.data(), part.size());
    return part.size();
  }

 private:
  std::string_view bytes_;
};

/// The first `most` bytes, fewer where there are fewer.
[[nodiscard]] inline std::string read_head(Bytes& bytes, std::size_t most) {
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(most, bytes.size())), '\0');
  std::size_t got = 0;
  while (got < head.size()) {
    const std::size_t more = bytes.read(got, std::span(head).subspan(got));
    if (more == 0) break;
    got += more;
  }
  head.resize(got);
  return head;
}

/// Why a member gives no unit.
class BadMember : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace orch::scan
