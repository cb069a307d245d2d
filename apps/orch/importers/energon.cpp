// Megatron-Energon datasets: a folder with .nv-meta/index.sqlite, made by `energon prepare --media-metadata-by-…`.
//
// Sizes of images, videos and clips come from the index. Words of parts named txt are read from the shards, where the
// index says they stand. Parts of other kinds are not read; a note names them. With split.yaml and .info.json a
// sample's task is its split, and --only names splits. Samples stream in the order of the index.
// SPDX-License-Identifier: Apache-2.0
#include "formats.hpp"

#ifndef ORCH_HAVE_ENERGON

namespace orch::apps {

namespace {

void read(const std::string& path, Import&) {
  throw InvalidInput(path +
                     ": this program was built without SQLite and yaml-cpp, expected the packages libsqlite3-dev "
                     "and libyaml-cpp-dev where it is configured");
}

std::string recognise(const Probe&) { return ""; }

}  // namespace

const Importer energon{"energon", "Megatron-Energon dataset (not in this build: needs SQLite and yaml-cpp)", "training",
                       recognise, read};

}  // namespace orch::apps

#else

#include <fmt/format.h>
#include <sqlite3.h>
#include <yaml-cpp/yaml.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "json_rows.hpp"
#include "values.hpp"

namespace orch::apps {

namespace {

namespace fs = std::filesystem;

/// Where a dataset's files are.
struct Folders {
  fs::path root;  ///< shards are relative to it
  fs::path meta;
};

Folders find_folders(const std::string& path) {
  const fs::path given = fs::absolute(fs::path(path).lexically_normal());
  if (!fs::is_directory(given)) return {given.parent_path().parent_path(), given.parent_path()};
  if (fs::is_directory(given / ".nv-meta")) return {given, given / ".nv-meta"};
  const fs::path meta = given.has_filename() ? given : given.parent_path();
  return {meta.parent_path(), meta};
}

std::string recognise(const Probe& probe) {
  if (probe.is_folder && fs::is_directory(fs::path(probe.path) / ".nv-meta")) return "the folder has .nv-meta";
  if (probe.is_folder && fs::is_regular_file(fs::path(probe.path) / "index.sqlite"))
    return "the folder has index.sqlite";
  return probe.name == "index.sqlite" ? "the name is index.sqlite" : "";
}

// --- splits ---

/// "shard_{000..002}.tar" → shard_000.tar, shard_001.tar, shard_002.tar
std::vector<std::string> expand(const std::string& pattern) {
  const std::size_t open = pattern.find('{'), dots = pattern.find("..", open), close = pattern.find('}', open);
  if (open == std::string::npos) return {pattern};
  if (dots == std::string::npos || close == std::string::npos || dots > close) {
    throw InvalidInput(in_quotes(pattern) + ": expected {FIRST..LAST} in a pattern of shards");
  }
  const std::string first = pattern.substr(open + 1, dots - open - 1);
  const std::uint32_t begin = parse_integer(first, "a shard's number", 0, 1U << 24U);
  const std::uint32_t end =
      parse_integer(pattern.substr(dots + 2, close - dots - 2), "a shard's number", begin, begin + (1U << 20U));
  std::vector<std::string> names;
  for (std::uint32_t i = begin; i <= end; ++i) {
    names.push_back(fmt::format("{}{:0{}}{}", pattern.substr(0, open), i, first.size(), pattern.substr(close + 1)));
  }
  return names;
}

/// What split.yaml says. Without the file every shard is in the split "".
struct Splits {
  std::map<std::string, std::string> of_shard;
  std::set<std::string> excluded;  ///< shards, or shard/key
  std::vector<std::string> names;
};

Splits read_splits(const fs::path& path) {
  Splits splits;
  try {
    const YAML::Node root = YAML::LoadFile(path.string());
    for (const auto& part : root["split_parts"]) {
      splits.names.push_back(part.first.as<std::string>());
      for (const auto& pattern : part.second) {
        for (std::string& shard : expand(pattern.as<std::string>()))
          splits.of_shard.emplace(std::move(shard), splits.names.back());
      }
    }
    for (const auto& entry : root["exclude"]) splits.excluded.insert(entry.as<std::string>());
  } catch (const YAML::Exception& error) {
    throw InvalidInput::at(path.string(), static_cast<std::uint64_t>(std::max(error.mark.line, 0)) + 1,
                           "not a split file: " + error.msg + ", expected split_parts: {name: [shard, …]}");
  } catch (const InvalidInput& error) {
    throw InvalidInput(path.string() + ": " + error.what());
  }
  return splits;
}

/// Names of shards by tar_file_id, from .info.json (in older datasets .info.yaml, which this does not read).
std::vector<std::string> read_shards(const fs::path& meta) {
  const fs::path path = meta / ".info.json";
  if (!fs::is_regular_file(path)) throw InvalidInput(path.string() + ": not there, expected it beside split.yaml");
  std::vector<std::string> shards;
  io::JsonItems members = io::JsonItems::members(path.string());
  while (const auto member = members.next()) {
    if (member->key != "shard_counts") continue;
    for (const auto field : read_object(member->value, "shard_counts")) shards.emplace_back(field.key);
  }
  return shards;
}

// --- the index ---

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
};
struct CloseStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

/// Rows of one query over the index, read-only.
class Query {
 public:
  Query(const std::string& path, const char* sql) : path_(path) {
    sqlite3* database = nullptr;
    const int opened = sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READONLY, nullptr);
    database_.reset(database);
    if (opened != SQLITE_OK) fail();
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(database, sql, -1, &statement, nullptr) != SQLITE_OK) fail();
    statement_.reset(statement);
  }

  [[nodiscard]] bool next() {
    const int result = sqlite3_step(statement_.get());
    if (result != SQLITE_ROW && result != SQLITE_DONE) fail();
    return result == SQLITE_ROW;
  }

  [[nodiscard]] std::int64_t integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  [[nodiscard]] std::string text(int column) const {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
    if (bytes == nullptr) return {};
    return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
  }

 private:
  [[noreturn]] void fail() const {
    throw InvalidInput(path_ + ": " + sqlite3_errmsg(database_.get()) +
                       ", expected an index of `energon prepare --media-metadata-by-…` (tables samples, sample_parts, "
                       "media_metadata)");
  }

  std::string path_;
  std::unique_ptr<sqlite3, CloseDatabase> database_;
  std::unique_ptr<sqlite3_stmt, CloseStatement> statement_;
};

/// Refuses an index whose tables are views or virtual: a query over those could run for ever.
void check_tables(const std::string& index) {
  Query tables(index,
               "SELECT name FROM sqlite_schema WHERE name IN ('samples', 'sample_parts', 'media_metadata') "
               "AND (type <> 'table' OR sql NOT LIKE 'CREATE TABLE%')");
  if (tables.next())
    throw InvalidInput(index + ": " + tables.text(0) + " is no table, expected an index of `energon prepare`");
}

struct Part {
  std::string name;
  std::int64_t offset = 0;
  std::int64_t size = 0;
  std::string media_type;
  std::string media_json;
};

struct IndexedSample {
  std::int64_t shard = -1;
  std::int64_t index = -1;
  std::string key;
  std::vector<Part> parts;
};

/// Reads words of text parts out of the shards.
class ShardReader {
 public:
  ShardReader(fs::path root, std::vector<std::string> shards) : root_(std::move(root)), shards_(std::move(shards)) {}

  [[nodiscard]] std::uint64_t words(std::int64_t shard, const Part& part) {
    if (shard < 0 || static_cast<std::size_t>(shard) >= shards_.size()) {
      throw InvalidInput(fmt::format("the shard {} is not in .info.json", shard));
    }
    const std::string path = (root_ / shards_[static_cast<std::size_t>(shard)]).string();
    if (path != open_path_) {
      if (!fs::is_regular_file(path))
        throw Incomplete("the shard " + path + " with the text is not there, expected it");
      file_ = std::ifstream(path, std::ios::binary);
      open_path_ = path;
    }
    if (part.offset < 0 || part.size < 0 || static_cast<std::uint64_t>(part.size) > io::max_line_bytes) {
      throw InvalidInput(
          fmt::format("the part {} has {} bytes at {}, expected at most 16 MiB", part.name, part.size, part.offset));
    }
    std::string text(static_cast<std::size_t>(part.size), '\0');
    file_.clear();
    file_.seekg(part.offset);
    if (!file_.read(text.data(), part.size))
      throw InvalidInput("the shard " + path + " ends before the part " + part.name);
    return count_words(text);
  }

 private:
  fs::path root_;
  std::vector<std::string> shards_;
  std::string open_path_;
  std::ifstream file_;
};

bool is_text(const std::string& part) { return part == "txt" || part.ends_with(".txt"); }

bool is_media(const std::string& part) {
  static const std::set<std::string, std::less<> > endings{"jpg",  "jpeg", "png", "webp", "gif", "bmp",
                                                           "tif",  "tiff", "mp4", "avi",  "mov", "mkv",
                                                           "webm", "wav",  "mp3", "flac", "ogg", "m4a"};
  return endings.contains(std::string_view(part).substr(part.rfind('.') + 1));
}

std::optional<Image> read_frame_size(Object media, std::string_view width, std::string_view height) {
  const auto wide = find(media, width), high = find(media, height);
  if (!wide || !high) return std::nullopt;
  return Image{read_integer(*wide, std::string(width), 1, io::detail::max_pixels_a_side),
               read_integer(*high, std::string(height), 1, io::detail::max_pixels_a_side)};
}

void add_media(Object media, const std::string& part, Sample& sample) {
  if (const auto size = read_frame_size(media, "width", "height")) {
    sample.images.push_back(*size);
    return;
  }
  const auto frames = find(media, "video_num_frames");
  const auto video = find(media, "video_duration");
  const auto audio = find(media, "audio_duration");
  if (frames || video) {
    VideoClip clip;
    if (frames) clip.frames = read_integer(*frames, "video_num_frames", 1, io::detail::max_frames);
    if (video) clip.microseconds = read_microseconds(*video, "video_duration");
    clip.size = read_frame_size(media, "video_width", "video_height").value_or(Image{});
    sample.video.push_back(clip);
  } else if (audio) {
    sample.audio.push_back({read_microseconds(*audio, "audio_duration")});
  } else {
    throw Incomplete(fmt::format("the metadata of {} has no size or duration, expected some", in_quotes(part)));
  }
}

class Reader {
 public:
  Reader(const Folders& folders, Import& import)
      : index_((folders.meta / "index.sqlite").string()), import_(import), texts_(folders.root, {}) {
    if (fs::is_regular_file(folders.meta / ".info.json")) shards_ = read_shards(folders.meta);
    texts_ = ShardReader(folders.root, shards_);
    if (fs::is_regular_file(folders.meta / "split.yaml")) splits_ = read_splits(folders.meta / "split.yaml");
    if (!splits_.names.empty() && shards_.empty()) (void)read_shards(folders.meta);  // says what is missing
    import.check_only(folders.meta.string(), splits_.names);
  }

  void read() {
    check_tables(index_);
    Query query(index_,
                "SELECT s.tar_file_id, s.sample_index, s.sample_key, p.part_name, p.content_byte_offset, "
                "p.content_byte_size, m.metadata_type, m.metadata_json FROM samples s "
                "LEFT JOIN sample_parts p ON p.tar_file_id = s.tar_file_id AND p.sample_index = s.sample_index "
                "LEFT JOIN media_metadata m ON m.entry_key = s.sample_key || '.' || p.part_name "
                "ORDER BY s.tar_file_id, s.sample_index, p.content_byte_offset");
    IndexedSample sample;
    while (query.next()) {
      if (query.integer(0) != sample.shard || query.integer(1) != sample.index) {
        finish(sample);
        sample = {query.integer(0), query.integer(1), query.text(2), {}};
      }
      if (sample.parts.size() >= io::detail::max_units)
        throw InvalidInput(index_ + ": a sample of more than 2^20 parts");
      sample.parts.push_back({query.text(3), query.integer(4), query.integer(5), query.text(6), query.text(7)});
    }
    finish(sample);
  }

 private:
  void finish(const IndexedSample& indexed) {
    if (indexed.shard < 0) return;
    const std::string shard = static_cast<std::size_t>(indexed.shard) < shards_.size()
                                  ? shards_[static_cast<std::size_t>(indexed.shard)]
                                  : "";
    if (splits_.excluded.contains(shard) || splits_.excluded.contains(shard + "/" + indexed.key)) return;
    std::string split;
    if (!splits_.names.empty()) {
      const auto found = splits_.of_shard.find(shard);
      if (found == splits_.of_shard.end() || !import_.wanted(found->second)) return;
      split = found->second;
    }
    import_.record({index_, 0, fmt::format("sample {}: ", in_quotes(indexed.key))}, split, [&](Sample& sample) {
      sample.id = indexed.key;
      std::uint64_t words = 0;
      for (const Part& part : indexed.parts) words += add_part(indexed.shard, part, sample);
      if (words > 0) sample.text = import_.tokens(words);
    });
  }

  /// Adds a unit, or gives the words of a text.
  std::uint64_t add_part(std::int64_t shard, const Part& part, Sample& sample) {
    if (!part.media_json.empty()) {
      Value media;
      if (parser_.parse(part.media_json).get(media) != simdjson::SUCCESS) {
        throw InvalidInput(fmt::format("the metadata of {} is not JSON", in_quotes(part.name)));
      }
      add_media(read_object(media, "the metadata"), part.name, sample);
    } else if (is_text(part.name)) {
      return texts_.words(shard, part);
    } else if (is_media(part.name)) {
      throw Incomplete(fmt::format(
          "the part {} has no media metadata, expected `energon prepare --media-metadata-by-…`", in_quotes(part.name)));
    } else if (!part.name.empty()) {
      import_.note(fmt::format("parts {} were not read: whatever text they hold is not counted", in_quotes(part.name)));
    }
    return 0;
  }

  std::string index_;
  Import& import_;
  std::vector<std::string> shards_;
  Splits splits_;
  ShardReader texts_;
  simdjson::dom::parser parser_;
};

void read(const std::string& path, Import& import) { Reader(find_folders(path), import).read(); }

}  // namespace

const Importer energon{"energon", "Megatron-Energon dataset folder with an index of media metadata", "training",
                       recognise, read};

}  // namespace orch::apps

#endif
