// Lines of a text file, plain, gzip or zstd, in constant memory.
//
// The compression is recognised by its magic bytes, not by the name. Every line is followed by at least 64 readable
// bytes (what simdjson asks for). Complexity: O(bytes). Throws InvalidInput with file and line for a file that cannot
// be opened, is cut short or corrupt, and for a line above `max_line_bytes`.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orchmllm/base/error.hpp"

namespace orch::io {

/// Longest accepted line. A trace's longest real lines (a sample with thousands of images) are far below.
inline constexpr std::size_t max_line_bytes = std::size_t{16} << 20U;

namespace detail {

/// Whether these bytes begin a zstd stream: a frame with data, or one to skip (RFC 8878, 3.1).
[[nodiscard]] inline bool begins_zstd(const unsigned char (&magic)[4]) {
  const bool data = magic[0] == 0x28 && magic[1] == 0xb5 && magic[2] == 0x2f && magic[3] == 0xfd;
  const bool skip = magic[0] >> 4U == 5 && magic[1] == 0x2a && magic[2] == 0x4d && magic[3] == 0x18;
  return data || skip;
}

/// Decompressed bytes of a file: of all members of a gzip file, of all frames of a zstd file.
class ByteSource {
 public:
  explicit ByteSource(const std::string& path) : path_(path) {
    if (std::filesystem::is_directory(path)) throw InvalidInput(path + ": is a folder, a file is needed");
    file_.reset(std::fopen(path.c_str(), "rb"));
    if (!file_) throw InvalidInput(path + ": " + std::strerror(errno));
    unsigned char magic[4] = {};
    const std::size_t got = std::fread(magic, 1, sizeof magic, file_.get());
    std::rewind(file_.get());
    if (got == 4 && begins_zstd(magic)) {
      zstd_.reset(ZSTD_createDStream());
      input_.resize(ZSTD_DStreamInSize());
    } else if (got >= 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
      file_.reset();
      gzip_.reset(gzopen(path.c_str(), "rb"));
      if (!gzip_) throw InvalidInput(path + ": " + std::strerror(errno));
      gzbuffer(gzip_.get(), 1U << 18U);
    }
  }

  /// Up to `size` bytes; 0 at the end. Sets `error()` if the file is cut short or corrupt.
  [[nodiscard]] std::size_t read(char* to, std::size_t size) {
    if (gzip_) return read_gzip(to, size);
    if (zstd_) return read_zstd(to, size);
    const std::size_t got = std::fread(to, 1, size, file_.get());
    if (got == 0 && std::ferror(file_.get()) != 0) error_ = "cannot be read";
    return got;
  }

  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  [[nodiscard]] std::size_t read_gzip(char* to, std::size_t size) {
    const int got = gzread(gzip_.get(), to, static_cast<unsigned>(size));
    if (got > 0) return static_cast<std::size_t>(got);
    int code = Z_OK;
    const char* message = gzerror(gzip_.get(), &code);
    if (code == Z_BUF_ERROR) {
      error_ = "the gzip stream is cut short";
    } else if (got < 0 || code < 0) {
      error_ = std::string("the gzip stream is corrupt (") + message + ")";
    }
    return 0;
  }

  [[nodiscard]] std::size_t read_zstd(char* to, std::size_t size) {
    ZSTD_outBuffer out{to, size, 0};
    while (out.pos == 0) {
      if (pending_.pos == pending_.size) {
        pending_ = {input_.data(), std::fread(input_.data(), 1, input_.size(), file_.get()), 0};
      }
      const bool file_ended = pending_.size == 0;  // then the decoder may still hold what did not fit before
      if (file_ended && frame_done_) return 0;
      const std::size_t result = ZSTD_decompressStream(zstd_.get(), &out, &pending_);
      if (ZSTD_isError(result) != 0) {
        error_ = std::string("the zstd stream is corrupt (") + ZSTD_getErrorName(result) + ")";
        return 0;
      }
      frame_done_ = result == 0;
      if (file_ended && out.pos == 0 && !frame_done_) {
        error_ = "the zstd stream is cut short";
        return 0;
      }
    }
    return out.pos;
  }

  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct CloseGzip {
    void operator()(gzFile file) const { gzclose(file); }
  };
  struct CloseZstd {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };

  std::string path_;
  std::string error_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::unique_ptr<gzFile_s, CloseGzip> gzip_;
  std::unique_ptr<ZSTD_DStream, CloseZstd> zstd_;
  std::vector<char> input_;
  ZSTD_inBuffer pending_{nullptr, 0, 0};
  bool frame_done_ = true;
};

/// What a reader has of a file: bytes that it has not taken yet, each followed by at least `padding` readable ones.
class ByteWindow {
 public:
  static constexpr std::size_t padding = 64;

  explicit ByteWindow(const std::string& path) : source_(path), buffer_(initial_bytes + padding) {}

  /// Not taken yet; valid until the next refill().
  [[nodiscard]] std::string_view bytes() const { return {buffer_.data() + begin_, end_ - begin_}; }
  void take(std::size_t count) { begin_ += count; }

  /// Reads more behind what is there; false at the end of the file or where it is cut short (`error()`).
  [[nodiscard]] bool refill() {
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (end_ + padding == buffer_.size()) buffer_.resize(2 * end_ + padding);
    const std::size_t got = source_.read(buffer_.data() + end_, buffer_.size() - padding - end_);
    end_ += got;
    return got > 0;
  }

  [[nodiscard]] const std::string& error() const { return source_.error(); }

 private:
  static constexpr std::size_t initial_bytes = std::size_t{1} << 16U;  ///< doubles for longer records

  ByteSource source_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace detail

class LineReader {
 public:
  explicit LineReader(const std::string& path) : path_(path), window_(path) {}

  /// The next line without its end, valid until the next call; nothing at the end of the file.
  [[nodiscard]] std::optional<std::string_view> next() {
    while (true) {
      const std::string_view bytes = window_.bytes();
      const std::size_t found = bytes.find('\n', scanned_);
      if (found != std::string_view::npos) return take(bytes.substr(0, found), found + 1);
      scanned_ = bytes.size();
      if (scanned_ > max_line_bytes) fail("the line is longer than " + std::to_string(max_line_bytes) + " bytes");
      if (window_.refill()) continue;
      if (!window_.error().empty()) fail(window_.error());
      if (scanned_ == 0) return std::nullopt;
      return take(window_.bytes(), scanned_);
    }
  }

  /// Number of the line that next() gave last, from 1.
  [[nodiscard]] std::uint64_t line() const { return line_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  [[nodiscard]] std::string_view take(std::string_view text, std::size_t consumed) {
    if (text.size() > max_line_bytes) fail("the line is longer than " + std::to_string(max_line_bytes) + " bytes");
    window_.take(consumed);
    scanned_ = 0;
    ++line_;
    return text;
  }

  [[noreturn]] void fail(const std::string& message) const { throw InvalidInput::at(path_, line_ + 1, message); }

  std::string path_;
  detail::ByteWindow window_;
  std::size_t scanned_ = 0;  ///< bytes of the window known to hold no line end
  std::uint64_t line_ = 0;
};

}  // namespace orch::io
