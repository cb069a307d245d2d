// Typed access to a TOML table, with file and line in every error; keys that nobody asked for are errors too.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <toml++/toml.h>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "orchmllm/base/error.hpp"

namespace orch::sim {

/// Finds `name` as a path, else as a shipped file `share/orchmllm/FOLDER/NAME.toml` beside the program's folder.
[[nodiscard]] std::string find_file(const std::string& folder, const std::string& name);

class TomlSection {
 public:
  TomlSection(const toml::table& table, std::string file) : table_(&table), file_(std::move(file)) {}

  [[nodiscard]] bool has(const char* key) const { return table_->contains(key); }
  /// In alphabetic order.
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::string text(const char* key);
  [[nodiscard]] bool boolean(const char* key, bool otherwise);
  [[nodiscard]] std::uint64_t integer(const char* key, std::uint64_t low, std::uint64_t high,
                                      std::optional<std::uint64_t> otherwise = {});
  [[nodiscard]] std::uint32_t integer32(const char* key, std::uint64_t low, std::uint64_t high);
  /// low < value ≤ high, or low ≤ value where low is 0.
  [[nodiscard]] double number(const char* key, double low, double high, std::optional<double> otherwise = {});
  [[nodiscard]] std::vector<double> numbers(const char* key);
  [[nodiscard]] std::vector<std::string> texts(const char* key, std::vector<std::string> otherwise);
  [[nodiscard]] TomlSection section(const char* key);
  [[nodiscard]] std::vector<TomlSection> sections(const char* key);
  [[noreturn]] void fail(const char* key, const std::string& message) const;
  /// Throws for a key that was never read.
  void done() const;

 private:
  /// At the node's own file and line: a table may hold what several files say.
  [[nodiscard]] InvalidInput error(const toml::node& node, const std::string& message) const;
  [[nodiscard]] const toml::node* find(const char* key);
  [[nodiscard]] const toml::node& get(const char* key, const std::string& expected);

  const toml::table* table_;
  std::string file_;
  std::set<std::string> read_;
};

/// A parsed file; sections refer into it.
struct TomlFile {
  explicit TomlFile(const std::string& path);
  std::string path;
  toml::table table;
  [[nodiscard]] TomlSection root() const { return {table, path}; }
};

}  // namespace orch::sim
