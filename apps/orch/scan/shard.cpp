#include "shard.hpp"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "member_kind.hpp"

namespace orch::scan {

namespace {

constexpr std::size_t head_bytes = std::size_t{1} << 20U;
constexpr std::size_t tail_bytes = std::size_t{16} << 20U;
constexpr std::size_t block_bytes = std::size_t{256} << 10U;
constexpr std::int64_t most_ratio = 256;
constexpr std::int64_t free_bytes = std::int64_t{64} << 20U;

class BadShard : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct FreeArchive {
  void operator()(archive* a) const { archive_read_free(a); }
};

[[nodiscard]] std::string reason(archive* a) {
  const char* text = archive_error_string(a);
  return text == nullptr ? "cannot be read" : text;
}

/// One open shard.
class Shard {
 public:
  explicit Shard(const std::string& path) : archive_(archive_read_new()) {
    if (!archive_) throw std::bad_alloc();
    archive_read_support_filter_gzip(get());
    archive_read_support_filter_zstd(get());
    archive_read_support_format_tar(get());
    if (archive_read_open_filename(get(), path.c_str(), block_bytes) != ARCHIVE_OK) throw BadShard(reason(get()));
  }

  [[nodiscard]] archive* get() const { return archive_.get(); }

  /// The next member, nullptr at the end.
  [[nodiscard]] archive_entry* next() {
    archive_entry* entry = nullptr;
    const int code = archive_read_next_header(get(), &entry);
    if (code == ARCHIVE_EOF) return nullptr;
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN) throw BadShard(reason(get()));
    check_ratio();
    return entry;
  }

  /// The next bytes of the member, false at its end.
  [[nodiscard]] bool block(std::string_view& bytes, std::uint64_t& at) {
    const void* data = nullptr;
    std::size_t size = 0;
    la_int64_t offset = 0;
    const int code = archive_read_data_block(get(), &data, &size, &offset);
    if (code == ARCHIVE_EOF) return false;
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN) throw BadShard(reason(get()));
    check_ratio();
    bytes = {static_cast<const char*>(data), size};
    at = static_cast<std::uint64_t>(offset);
    return true;
  }

  /// To the member's end: by seeking, or by unpacking under the eyes of check_ratio().
  void skip() {
    if (!compressed()) return;  // next() seeks
    std::string_view bytes;
    std::uint64_t at = 0;
    while (block(bytes, at)) {
    }
  }

  /// Bytes of the file passed since the last call.
  [[nodiscard]] std::uint64_t advance() {
    const auto now = static_cast<std::uint64_t>(archive_filter_bytes(get(), -1));
    return now - std::exchange(seen_, now);
  }

 private:
  [[nodiscard]] bool compressed() const { return archive_filter_count(get()) > 1; }

  void check_ratio() const {
    if (!compressed()) return;
    const std::int64_t packed = archive_filter_bytes(get(), -1);
    const std::int64_t unpacked = archive_filter_bytes(get(), 0);
    if (unpacked > free_bytes && unpacked / most_ratio > packed) {
      throw BadShard("unpacks to more than 256 times its size, given up");
    }
  }

  std::unique_ptr<archive, FreeArchive> archive_;
  std::uint64_t seen_ = 0;
};

/// A member's bytes, pulled from the shard as they are asked for.
class ShardMember final : public Bytes {
 public:
  ShardMember(Shard& shard, std::uint64_t size) : shard_(shard), size_(size) {}

  [[nodiscard]] std::uint64_t size() const noexcept override { return size_; }

  [[nodiscard]] std::size_t read(std::uint64_t at, std::span<char> to) noexcept override {
    if (at >= size_ || to.empty()) return 0;
    const std::uint64_t wanted = std::min<std::uint64_t>(size_, at + to.size());
    try {
      while (!done_ && pulled_ < wanted) pull();
      if (at >= head_.size()) {
        while (!done_) pull();
      }
    } catch (const std::exception& error) {
      done_ = true;
      error_ = error.what();
    }
    if (at < head_.size()) return copy(head_, 0, at, to);
    return at < tail_at_ ? 0 : copy(tail_, tail_at_, at, to);
  }

  /// Why the shard cannot be read on; empty if it can.
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  static std::size_t copy(const std::string& from, std::uint64_t from_at, std::uint64_t at, std::span<char> to) {
    if (at - from_at >= from.size()) return 0;
    return from.copy(to.data(), to.size(), static_cast<std::size_t>(at - from_at));
  }

  void pull() {
    std::string_view bytes;
    std::uint64_t at = 0;
    if (!shard_.block(bytes, at)) {
      done_ = true;
      return;
    }
    // A sparse member has holes, for which nothing is stored; to its reader it ends there.
    if (at != pulled_) {
      done_ = true;
      return;
    }
    pulled_ += bytes.size();
    const std::string_view to_head = bytes.substr(0, head_bytes - head_.size());
    head_ += to_head;
    keep_tail(bytes.substr(to_head.size()));
  }

  void keep_tail(std::string_view bytes) {
    tail_ += bytes;
    if (tail_.size() > 2 * tail_bytes) tail_.erase(0, tail_.size() - tail_bytes);
    tail_at_ = pulled_ - tail_.size();
  }

  Shard& shard_;
  std::uint64_t size_;
  std::uint64_t pulled_ = 0;
  std::uint64_t tail_at_ = 0;
  std::string head_;
  std::string tail_;
  std::string error_;
  bool done_ = false;
};

/// WebDataset's key: the path up to the first dot of the last part.
[[nodiscard]] std::string_view key_of(std::string_view path) {
  const std::size_t name = path.rfind('/') + 1;
  return path.substr(0, std::min(path.find('.', name), path.size()));
}

void scan_members(const std::string& path, SampleBuilder& builder, ProgressBar& progress) {
  Shard shard(path);
  while (archive_entry* entry = shard.next()) {
    const char* raw = archive_entry_pathname(entry);
    std::string name = raw == nullptr ? "" : raw;
    if (name.starts_with("./")) name.erase(0, 2);
    const bool hidden = name.empty() || name.substr(name.rfind('/') + 1).starts_with('.');
    if (archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr && !hidden) {
      ShardMember member(shard, static_cast<std::uint64_t>(std::max<la_int64_t>(0, archive_entry_size(entry))));
      builder.add(key_of(name), name, member);
      if (!member.error().empty()) throw BadShard(member.error());
    }
    shard.skip();
    progress.add(shard.advance(), 1);
  }
}

}  // namespace

void scan_shard(const std::string& path, SampleBuilder& builder, ProgressBar& progress) {
  try {
    scan_members(path, builder, progress);
  } catch (const BadShard& error) {
    builder.break_off(error.what());
  }
}

}  // namespace orch::scan
