#include "walk.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "../printable.hpp"
#include "member_kind.hpp"
#include "orchmllm/base/error.hpp"
#include "orchmllm/base/hash.hpp"
#include "orchmllm/io/line_reader.hpp"

namespace orch::scan {

namespace {

constexpr std::size_t files_a_chunk = 1024;

struct FileFacts {
  std::uint64_t size = 0;
  std::uint64_t modified = 0;  ///< nanoseconds
};

/// A regular file's, nothing for anything else.
[[nodiscard]] std::optional<FileFacts> facts_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return FileFacts{static_cast<std::uint64_t>(status.st_size),
                   static_cast<std::uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000U +
                       static_cast<std::uint64_t>(status.st_mtim.tv_nsec)};
}

[[nodiscard]] Fingerprint identity_of(const Settings& settings) {
  constexpr std::uint64_t version = 1;  // of what scanning gives for the same bytes
  Fingerprint identity;
  identity.add(version).add_bytes(settings.task);
  identity.add(settings.tokens_per_word ? 1 : 0).add_bytes(std::to_string(settings.tokens_per_word.value_or(0)));
  return identity;
}

/// The position of a file's key in its path: from `root` bytes on, without the extension.
[[nodiscard]] LooseFile loose_file(std::string path, std::size_t root) {
  const std::size_t name = path.rfind('/') + 1;
  const std::size_t dot = path.rfind('.');
  const std::size_t end = dot == std::string::npos || dot <= name ? path.size() : dot;
  return {std::move(path), std::min(root, name), end};
}

class Planner {
 public:
  explicit Planner(const Settings& settings) : settings_(settings) {}

  void add(const std::string& input) {
    struct stat status {};
    if (::stat(input.c_str(), &status) != 0) throw InvalidInput(apps::printable(input) + ": " + std::strerror(errno));
    if (S_ISREG(status.st_mode) && !is_shard(input)) return add_single(input);
    finish_list();
    if (S_ISDIR(status.st_mode)) return add_folder(input);
    if (S_ISREG(status.st_mode)) return add_shard(input);
    throw InvalidInput(apps::printable(input) + ": is neither a folder nor a file");
  }

  [[nodiscard]] Plan finish() {
    finish_list();
    return std::move(plan_);
  }

 private:
  void add_single(const std::string& path) {
    if (member_kind(path) == MemberKind::other) {
      throw InvalidInput(apps::printable(path) +
                         ": is no folder, no shard (.tar, .tar.gz, .tar.zst) and no media or text file by its name");
    }
    list_.push_back(loose_file(path, 0));
  }

  /// Files with the same key come together, where the key appears first.
  void finish_list() {
    std::unordered_map<std::string_view, std::size_t> first;
    std::vector<std::pair<std::size_t, std::size_t>> order;  // place of the key, place of the file
    for (std::size_t i = 0; i < list_.size(); ++i)
      order.emplace_back(first.try_emplace(list_[i].key(), i).first->second, i);
    std::sort(order.begin(), order.end());
    std::vector<LooseFile> sorted;
    sorted.reserve(list_.size());
    for (const auto& [key, i] : order) sorted.push_back(std::move(list_[i]));
    list_.clear();
    add_files("", std::move(sorted));
  }

  void add_shard(const std::string& path) {
    const FileFacts facts = facts_of(path).value_or(FileFacts{});
    Chunk chunk;
    chunk.name = path;
    chunk.shard = true;
    chunk.bytes = facts.size;
    chunk.identity = identity_of(settings_).add(1).add_bytes(path).add(facts.size).add(facts.modified).value();
    plan_.chunks.push_back(std::move(chunk));
  }

  /// Runs of files, cut between keys.
  void add_files(const std::string& name, std::vector<LooseFile> files) {
    std::size_t begin = 0;
    while (begin < files.size()) {
      std::size_t end = std::min(begin + files_a_chunk, files.size());
      while (end < files.size() && files[end].key() == files[end - 1].key()) ++end;
      Chunk chunk;
      chunk.name = name;
      Fingerprint identity = identity_of(settings_).add(2);
      for (std::size_t i = begin; i < end; ++i) {
        const FileFacts facts = facts_of(files[i].path).value_or(FileFacts{});
        identity.add(files[i].key_begin).add_bytes(files[i].path).add(facts.size).add(facts.modified);
        chunk.bytes += facts.size;
        chunk.files.push_back(std::move(files[i]));
      }
      chunk.identity = identity.value();
      plan_.chunks.push_back(std::move(chunk));
      begin = end;
    }
  }

  void add_folder(const std::string& root) {
    const std::string base = root.ends_with('/') ? root : root + '/';
    std::vector<LooseFile> files;
    std::vector<std::string> shards;
    std::vector<std::string> folders{base};
    std::set<std::pair<dev_t, ino_t>> seen;
    (void)first_visit(base, seen);
    while (!folders.empty()) {
      const std::string folder = std::move(folders.back());
      folders.pop_back();
      list_folder(folder, base.size(), files, shards, folders, seen);
    }
    std::sort(files.begin(), files.end(), [](const LooseFile& a, const LooseFile& b) {
      const int by_key = a.key().compare(b.key());
      return by_key != 0 ? by_key < 0 : a.path < b.path;
    });
    std::sort(shards.begin(), shards.end());
    add_files(root, std::move(files));
    for (const std::string& shard : shards) add_shard(shard);
  }

  void list_folder(const std::string& folder, std::size_t root, std::vector<LooseFile>& files,
                   std::vector<std::string>& shards, std::vector<std::string>& folders,
                   std::set<std::pair<dev_t, ino_t>>& seen) {
    std::error_code error;
    std::filesystem::directory_iterator entry(folder, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with('.')) continue;
      std::string path = folder + name;
      struct stat status {};
      struct stat link {};
      if (::lstat(path.c_str(), &link) != 0) continue;
      if (::stat(path.c_str(), &status) != 0) {
        plan_.unreadable.push_back({apps::printable(path), "", std::strerror(errno)});
      } else if (S_ISDIR(status.st_mode)) {
        path += '/';
        const bool enter = settings_.follow_symlinks || !S_ISLNK(link.st_mode);
        if (enter && first_visit(path, seen)) folders.push_back(std::move(path));
      } else if (S_ISREG(status.st_mode)) {
        add_file(std::move(path), root, files, shards);
      }
    }
    if (error) plan_.unreadable.push_back({apps::printable(folder), "", error.message()});
  }

  void add_file(std::string path, std::size_t root, std::vector<LooseFile>& files, std::vector<std::string>& shards) {
    if (is_shard(path)) {
      shards.push_back(std::move(path));
    } else if (member_kind(path) != MemberKind::other) {
      files.push_back(loose_file(std::move(path), root));
    } else {
      ++plan_.ignored[apps::printable(extension(path))];
    }
  }

  [[nodiscard]] static bool first_visit(const std::string& folder, std::set<std::pair<dev_t, ino_t>>& seen) {
    struct stat status {};
    return ::stat(folder.c_str(), &status) == 0 && seen.emplace(status.st_dev, status.st_ino).second;
  }

  const Settings& settings_;
  Plan plan_;
  std::vector<LooseFile> list_;
};

}  // namespace

std::vector<std::string> read_list(const std::string& path) {
  std::vector<std::string> paths;
  io::LineReader lines(path);
  while (auto line = lines.next()) {
    if (line->ends_with('\r')) line->remove_suffix(1);
    if (!line->empty()) paths.emplace_back(*line);
  }
  return paths;
}

Plan plan_chunks(const std::vector<std::string>& inputs, const Settings& settings) {
  Planner planner(settings);
  for (const std::string& input : inputs) planner.add(input);
  return planner.finish();
}

}  // namespace orch::scan
