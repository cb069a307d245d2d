// Output files that are whole or absent: written beside their place, renamed at the end.
//
// A name that ends in .gz is compressed with gzip (level 6, no time stamp), one that ends in .zst with zstd (level 3):
// the same bytes every time with the same version of these libraries.
// Throws Error if a file cannot be written; the file beside is removed unless commit() succeeded.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orchmllm/base/error.hpp"

namespace orch::io {

class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path) : path_(path), beside_(path + ".part-" + std::to_string(::getpid())) {
    // "T" writes plain bytes through the same interface.
    file_ = gzopen(beside_.c_str(), path.ends_with(".gz") ? "wb6" : "wbT");
    if (file_ == nullptr) throw InvalidInput(path + ": cannot be written: " + std::strerror(errno));
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
    if (!committed_) std::remove(beside_.c_str());
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
    if (closed != Z_OK || std::rename(beside_.c_str(), path_.c_str()) != 0) fail();
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
  bool committed_ = false;
};

}  // namespace orch::io
