// Output files that are whole or absent: written beside their place, renamed at the end.
//
// A name that ends in .gz is compressed with gzip (level 6, no time stamp), one that ends in .zst with zstd (level 3):
// the same bytes every time with the same version of these libraries.
// Throws Error if a file cannot be written; the file beside is removed unless commit() succeeded, and by a program that
// calls remove_pending_files() when a signal ends it. Links are followed. What stands at the path and is no file (a
// device, a pipe) is written straight into.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "orchmllm/base/error.hpp"

namespace orch::io {

namespace detail {

/// Names of files that are being written, where a signal handler can read them: fixed places, no locks.
struct PendingFile {
  std::atomic<bool> used = false;
  std::array<char, 4096> name{};
};
inline std::array<PendingFile, 16> pending_files;

/// A place for the name, or nothing where all are taken or the name is too long: such a file is not removed by a
/// signal.
[[nodiscard]] inline PendingFile* remember_pending(const std::string& name) {
  if (name.size() >= pending_files[0].name.size()) return nullptr;
  for (PendingFile& place : pending_files) {
    if (place.used) continue;
    std::copy(name.begin(), name.end(), place.name.begin());
    place.name[name.size()] = 0;
    place.used = true;
    return &place;
  }
  return nullptr;
}

/// What a path leads to: links followed, where there is something.
[[nodiscard]] inline std::string target_of(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path target = std::filesystem::canonical(path, ignored);
  return ignored ? path : target.string();
}

}  // namespace detail

/// Removes the files that are being written. For signal handlers: calls nothing but unlink().
inline void remove_pending_files() {
  for (const detail::PendingFile& place : detail::pending_files) {
    if (place.used) ::unlink(place.name.data());
  }
}

class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path) : path_(detail::target_of(path)) {
    std::error_code ignored;
    const std::filesystem::file_status there = std::filesystem::status(path_, ignored);
    if (path.empty()) throw InvalidInput("an output file has an empty name");
    if (std::filesystem::is_directory(there)) throw InvalidInput(path + ": is a folder, expected a file to write");
    straight_ = std::filesystem::exists(there) && !std::filesystem::is_regular_file(there);
    beside_ = straight_ ? path_ : path_ + ".part-" + std::to_string(::getpid());
    // "T" writes plain bytes through the same interface.
    file_ = gzopen(beside_.c_str(), path.ends_with(".gz") ? "wb6" : "wbT");
    if (file_ == nullptr) throw InvalidInput(path + ": cannot be written: " + std::strerror(errno));
    if (!straight_) pending_ = detail::remember_pending(beside_);
    gzbuffer(file_, 1U << 18U);
    if (path.ends_with(".zst")) {
      zstd_.reset(ZSTD_createCCtx());
      packed_.resize(ZSTD_CStreamOutSize());
    }
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() {
    if (file_ != nullptr) gzclose(file_);
    if (!committed_ && !straight_) std::remove(beside_.c_str());
    if (pending_ != nullptr) pending_->used = false;
  }

  void write(std::string_view bytes) {
    if (zstd_) {
      write_zstd(bytes, ZSTD_e_continue);
    } else {
      write_file(bytes);
    }
  }

  /// Closes the file and puts it in its place.
  void commit() {
    if (zstd_) write_zstd({}, ZSTD_e_end);
    const int closed = gzclose(file_);
    file_ = nullptr;
    if (closed != Z_OK || (!straight_ && std::rename(beside_.c_str(), path_.c_str()) != 0)) fail();
    committed_ = true;
  }

 private:
  struct FreeZstd {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };

  void write_file(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::string_view part = bytes.substr(0, std::size_t{1} << 30U);
      if (gzwrite(file_, part.data(), static_cast<unsigned>(part.size())) <= 0) fail();
      bytes.remove_prefix(part.size());
    }
  }

  void write_zstd(std::string_view bytes, ZSTD_EndDirective end) {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    for (bool done = false; !done;) {
      ZSTD_outBuffer out{packed_.data(), packed_.size(), 0};
      const std::size_t left = ZSTD_compressStream2(zstd_.get(), &out, &in, end);
      if (ZSTD_isError(left) != 0) throw Error(path_ + ": cannot be compressed: " + ZSTD_getErrorName(left), 1);
      write_file({packed_.data(), out.pos});
      done = end == ZSTD_e_end ? left == 0 : in.pos == in.size;
    }
  }

  [[noreturn]] void fail() const { throw Error(path_ + ": cannot be written: " + std::strerror(errno), 1); }

  std::string path_;
  std::string beside_;
  gzFile file_ = nullptr;
  std::unique_ptr<ZSTD_CCtx, FreeZstd> zstd_;
  std::vector<char> packed_;
  detail::PendingFile* pending_ = nullptr;
  bool straight_ = false;
  bool committed_ = false;
};

}  // namespace orch::io
