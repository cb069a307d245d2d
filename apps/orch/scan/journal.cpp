#include "journal.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "orchmllm/base/error.hpp"
#include "orchmllm/base/hash.hpp"

namespace orch::scan {

namespace {

using Json = nlohmann::json;

constexpr std::size_t most_header_bytes = 256;
constexpr std::uint64_t most_payload_bytes = std::uint64_t{1} << 30U;

[[nodiscard]] Json to_json(const ChunkResult& result) {
  Json corrupt = Json::array();
  for (const CorruptMember& one : result.corrupt) corrupt.push_back({one.input, one.member, one.error});
  return {{"samples", result.samples},
          {"left_out", result.left_out},
          {"images", result.images},
          {"audio", result.audio},
          {"video", result.video},
          {"text_tokens", result.text_tokens},
          {"estimated", result.estimated},
          {"ignored", result.ignored},
          {"returning_keys", result.returning_keys},
          {"corrupt_members", result.corrupt_members},
          {"corrupt", corrupt}};
}

[[nodiscard]] ChunkResult result_of(const Json& json) {
  ChunkResult result;
  json.at("samples").get_to(result.samples);
  json.at("left_out").get_to(result.left_out);
  json.at("images").get_to(result.images);
  json.at("audio").get_to(result.audio);
  json.at("video").get_to(result.video);
  json.at("text_tokens").get_to(result.text_tokens);
  json.at("estimated").get_to(result.estimated);
  json.at("ignored").get_to(result.ignored);
  json.at("returning_keys").get_to(result.returning_keys);
  json.at("corrupt_members").get_to(result.corrupt_members);
  for (const Json& one : json.at("corrupt")) result.corrupt.push_back({one.at(0), one.at(1), one.at(2)});
  return result;
}

[[nodiscard]] std::string check_of(std::string_view payload) { return hex(Fingerprint().add_bytes(payload).value()); }

/// Whole or false.
[[nodiscard]] bool read_at(int file, std::uint64_t at, char* to, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = ::pread(file, to, bytes, static_cast<off_t>(at));
    if (got <= 0) return false;
    to += got;
    at += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

Journal::Journal(const std::string& path) : path_(path) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file_ < 0) throw InvalidInput(path + ": cannot be written: " + std::strerror(errno));
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
    ::close(file_);
    throw InvalidInput(path + ": another scan writes this output");
  }
  try {
    load();
  } catch (...) {
    ::close(file_);
    throw;
  }
}

Journal::~Journal() {
  if (file_ < 0) return;
  if (std::none_of(entries_.begin(), entries_.end(), [](const auto& entry) { return entry.second.done; })) {
    ::unlink(path_.c_str());
  }
  ::close(file_);
}

void Journal::fail() const { throw Error(path_ + ": cannot be written: " + std::strerror(errno), 1); }

void Journal::load() {
  struct stat status {};
  if (::fstat(file_, &status) != 0) fail();
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::string payload;
  while (end_ < size) {
    std::string head(std::min<std::uint64_t>(most_header_bytes, size - end_), '\0');
    if (!read_at(file_, end_, head.data(), head.size())) break;
    const std::size_t line = head.find('\n');
    if (line == std::string::npos) break;
    try {
      const Json record = Json::parse(head.substr(0, line));
      const std::uint64_t bytes = record.at("bytes");
      const std::uint64_t at = end_ + line + 1;
      if (bytes > most_payload_bytes || bytes > size - at) break;
      payload.resize(bytes);
      if (!read_at(file_, at, payload.data(), bytes) || record.at("check") != check_of(payload)) break;
      apply(record.at("chunk"), record.at("kind"), at, payload);
      end_ = at + bytes;
    } catch (const Json::exception&) {
      break;
    }
  }
  if (::ftruncate(file_, static_cast<off_t>(end_)) != 0) fail();
}

void Journal::apply(std::uint64_t chunk, const std::string& kind, std::uint64_t at, std::string_view payload) {
  if (kind == "begin") {
    entries_[chunk] = {};
  } else if (kind == "lines") {
    entries_[chunk].parts.push_back({at, payload.size()});
  } else if (kind == "done") {
    Entry& entry = entries_[chunk];
    entry.result = result_of(Json::parse(payload));
    entry.done = true;
  }
}

void Journal::append(std::uint64_t chunk, const std::string& kind, std::string_view payload) {
  const Json header{{"chunk", chunk}, {"kind", kind}, {"bytes", payload.size()}, {"check", check_of(payload)}};
  std::string record = header.dump() + "\n";
  const std::uint64_t at = record.size();
  record += payload;
  const std::lock_guard lock(mutex_);
  std::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t written =
        ::pwrite(file_, rest.data(), rest.size(), static_cast<off_t>(end_ + record.size() - rest.size()));
    if (written < 0) fail();
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  apply(chunk, kind, end_ + at, payload);
  end_ += record.size();
}

bool Journal::done(std::uint64_t chunk) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(chunk);
  return found != entries_.end() && found->second.done;
}

void Journal::begin(std::uint64_t chunk) { append(chunk, "begin", {}); }
void Journal::lines(std::uint64_t chunk, std::string_view lines) { append(chunk, "lines", lines); }
void Journal::finish(std::uint64_t chunk, const ChunkResult& result) { append(chunk, "done", to_json(result).dump()); }

const ChunkResult& Journal::result(std::uint64_t chunk) const {
  const std::lock_guard lock(mutex_);
  return entries_.at(chunk).result;
}

void Journal::copy(std::uint64_t chunk, io::AtomicFile& to) const {
  std::string text;
  for (const Part& part : entries_.at(chunk).parts) {
    text.resize(part.bytes);
    if (!read_at(file_, part.at, text.data(), text.size())) throw Error(path_ + ": cannot be read back", 1);
    to.write(text);
  }
}

void Journal::remove() {
  if (::unlink(path_.c_str()) != 0) fail();
  ::close(file_);
  file_ = -1;
}

}  // namespace orch::scan
