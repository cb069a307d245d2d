#include "journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "orchmllm/base/error.hpp"

namespace orch::sweep {

namespace {

[[nodiscard]] std::string read_all(int file) {
  std::string text;
  std::array<char, 1U << 16U> part{};
  for (ssize_t got = 0; (got = ::read(file, part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text;
}

/// In what two sweeps differ.
[[nodiscard]] std::string difference(const Json& journal, const Json& sweep) {
  if (!journal.is_object() || journal.value("schema", "") != sweep["schema"]) return "it is no journal of a sweep";
  if (journal.value("program", "") != sweep["program"]) return "it was written by another build of orch";
  if (journal.value("points", "") != sweep["points"]) return "the sweep's options have changed since";
  return "an input file has changed since";
}

}  // namespace

Journal::Journal(const std::string& path, const Json& identity, bool discard) : path_(path) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file_ < 0) throw InvalidInput(path + ": cannot be written: " + std::strerror(errno));
  try {
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) throw InvalidInput(path + ": another sweep writes this output");
    if (discard) cut(0);
    load(identity);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

Journal::~Journal() {
  if (file_ >= 0) ::close(file_);
}

void Journal::fail() const { throw Error(path_ + ": cannot be written: " + std::strerror(errno), 1); }

void Journal::cut(std::size_t bytes) {
  if (::ftruncate(file_, static_cast<off_t>(bytes)) != 0) fail();
}

void Journal::load(const Json& identity) {
  const std::string text = read_all(file_);
  std::size_t good = 0;
  for (std::size_t end = 0; (end = text.find('\n', good)) != std::string::npos; good = end + 1) {
    const std::string line = text.substr(good, end - good);
    const Json json = Json::parse(line, nullptr, false);
    if (good == 0 && !(json == identity)) {  // not !=, which is false for what is no JSON
      throw InvalidInput(
          fmt::format("{}: belongs to another sweep ({}); --restart discards it", path_, difference(json, identity)));
    }
    if (good == 0) continue;
    if (!json.is_object() || !json.contains("point") || !json["point"].is_number_unsigned()) break;
    finished_[json["point"].get<std::size_t>()] = line;
  }
  if (good < text.size()) cut(good);
  if (good == 0) append(identity.dump());
}

void Journal::append(const std::string& line) {
  const std::string text = line + "\n";
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_, rest.data(), rest.size());
    if (written < 0) fail();
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(file_) != 0) fail();
}

void Journal::remove() {
  if (::unlink(path_.c_str()) != 0) fail();
  ::close(file_);
  file_ = -1;
}

}  // namespace orch::sweep
