// Output files that are whole or absent: written beside their place, renamed at the end.
//
// A name that ends in .gz is compressed with gzip (level 6, no time stamp: the same bytes every time).
// Throws Error if a file cannot be written; the file beside is removed unless commit() succeeded.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "orchmllm/base/error.hpp"

namespace orch::io {

class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path) : path_(path), beside_(path + ".part-" + std::to_string(::getpid())) {
    // "T" writes plain bytes through the same interface.
    const bool compressed = path.ends_with(".gz");
    file_ = gzopen(beside_.c_str(), compressed ? "wb6" : "wbT");
    if (file_ == nullptr) throw InvalidInput(path + ": cannot be written: " + std::strerror(errno));
    gzbuffer(file_, 1U << 18U);
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() {
    if (file_ != nullptr) gzclose(file_);
    if (!committed_) std::remove(beside_.c_str());
  }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::string_view part = bytes.substr(0, std::size_t{1} << 30U);
      if (gzwrite(file_, part.data(), static_cast<unsigned>(part.size())) <= 0) fail();
      bytes.remove_prefix(part.size());
    }
  }

  /// Closes the file and puts it in its place.
  void commit() {
    const int closed = gzclose(file_);
    file_ = nullptr;
    if (closed != Z_OK || std::rename(beside_.c_str(), path_.c_str()) != 0) fail();
    committed_ = true;
  }

 private:
  [[noreturn]] void fail() const { throw Error(path_ + ": cannot be written: " + std::strerror(errno), 1); }

  std::string path_;
  std::string beside_;
  gzFile file_ = nullptr;
  bool committed_ = false;
};

}  // namespace orch::io
