#include "files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "bytes.hpp"

namespace orch::scan {

namespace {

/// A regular file, else BadMember.
class FileBytes final : public Bytes {
 public:
  explicit FileBytes(const std::string& path) {
    // Not blocking: the file may have become a pipe since the folder was listed.
    file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file_ < 0) throw BadMember(std::string("cannot be opened: ") + std::strerror(errno));
    struct stat status {};
    if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
      ::close(file_);
      throw BadMember("is no regular file");
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
  ~FileBytes() override { ::close(file_); }

  [[nodiscard]] std::uint64_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t read(std::uint64_t at, std::span<char> to) noexcept override {
    if (at >= size_) return 0;
    const ssize_t got = ::pread(file_, to.data(), to.size(), static_cast<off_t>(at));
    return got <= 0 ? 0 : static_cast<std::size_t>(got);
  }

 private:
  int file_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace

void scan_files(const std::vector<LooseFile>& files, SampleBuilder& builder, ProgressBar& progress) {
  for (const LooseFile& file : files) {
    std::uint64_t bytes = 0;
    try {
      FileBytes content(file.path);
      bytes = content.size();
      builder.add(file.key(), file.name(), content);
    } catch (const BadMember& error) {
      builder.add_corrupt(file.key(), file.name(), error.what());
    }
    progress.add(bytes, 1);
  }
}

}  // namespace orch::scan
