#include "toml_reader.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

namespace orch::sim {

std::string find_file(const std::string& folder, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_regular_file(name, ignored)) return name;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  std::vector<fs::path> places{program.parent_path().parent_path() / "share" / "orchmllm" / folder};
  if (const char* given = std::getenv("ORCHMLLM_DATA")) places.insert(places.begin(), fs::path(given) / folder);
  std::string known;
  for (const fs::path& place : places) {
    const fs::path file = place / (name + ".toml");
    if (fs::is_regular_file(file, ignored)) return file.string();
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(place, ignored)) names.insert(entry.path().stem().string());
    for (const std::string& entry : names) known += (known.empty() ? "" : ", ") + entry;
  }
  throw InvalidInput(fmt::format("no file \"{}\", and no shipped {} file of that name; shipped: {}", name,
                                 folder.substr(0, folder.size() - 1), known.empty() ? "none found" : known));
}

TomlFile::TomlFile(const std::string& file_path) : path(file_path) {
  if (!std::filesystem::is_regular_file(file_path)) throw InvalidInput(file_path + ": no such file");
  try {
    table = toml::parse_file(file_path);
  } catch (const toml::parse_error& error) {
    throw InvalidInput::at(file_path, error.source().begin.line, std::string(error.description()));
  }
}

InvalidInput TomlSection::error(const toml::node& node, const std::string& message) const {
  const toml::source_region& source = node.source();
  return InvalidInput::at(source.path ? *source.path : file_, source.begin.line, message);
}

const toml::node* TomlSection::find(const char* key) {
  read_.insert(key);
  return table_->get(key);
}

const toml::node& TomlSection::get(const char* key, const std::string& expected) {
  const toml::node* node = find(key);
  if (node == nullptr) {
    throw error(*table_, fmt::format("{} is missing, expected {}", key, expected));
  }
  return *node;
}

void TomlSection::fail(const char* key, const std::string& message) const {
  const toml::node* node = table_->get(key);
  throw error(node != nullptr ? *node : static_cast<const toml::node&>(*table_), fmt::format("{} {}", key, message));
}

std::string TomlSection::text(const char* key) {
  const auto value = get(key, "a string").value<std::string>();
  if (!value) fail(key, "must be a string");
  return *value;
}

bool TomlSection::boolean(const char* key, bool otherwise) {
  const toml::node* node = find(key);
  if (node == nullptr) return otherwise;
  if (!node->is_boolean()) fail(key, "must be true or false");
  return node->as_boolean()->get();
}

std::uint64_t TomlSection::integer(const char* key, std::uint64_t low, std::uint64_t high,
                                   std::optional<std::uint64_t> otherwise) {
  if (otherwise && find(key) == nullptr) return *otherwise;
  const std::string expected = fmt::format("an integer from {} to {}", low, high);
  const toml::node& node = get(key, expected);
  const auto* value = node.as_integer();
  if (value == nullptr || value->get() < 0 || static_cast<std::uint64_t>(value->get()) < low ||
      static_cast<std::uint64_t>(value->get()) > high) {
    fail(key, "must be " + expected);
  }
  return static_cast<std::uint64_t>(value->get());
}

std::uint32_t TomlSection::integer32(const char* key, std::uint64_t low, std::uint64_t high) {
  return static_cast<std::uint32_t>(integer(key, low, high));
}

double TomlSection::number(const char* key, double low, double high, std::optional<double> otherwise) {
  if (otherwise && find(key) == nullptr) return *otherwise;
  const std::string expected =
      fmt::format("a number {} {} and at most {}", low > 0 ? "above" : "of at least", low, high);
  const auto value = get(key, expected).value<double>();
  if (!value || !std::isfinite(*value) || *value < low || (low > 0 && *value <= low) || *value > high) {
    fail(key, "must be " + expected);
  }
  return *value;
}

std::vector<double> TomlSection::numbers(const char* key) {
  const auto* array = get(key, "a list of numbers").as_array();
  if (array == nullptr || array->empty()) fail(key, "must be a list of numbers");
  std::vector<double> values;
  for (const toml::node& node : *array) {
    const auto value = node.value<double>();
    if (!value || !std::isfinite(*value)) fail(key, "must be a list of numbers");
    values.push_back(*value);
  }
  return values;
}

std::vector<std::string> TomlSection::texts(const char* key, std::vector<std::string> otherwise) {
  const toml::node* node = find(key);
  if (node == nullptr) return otherwise;
  const auto* array = node->as_array();
  if (array == nullptr) fail(key, "must be a list of strings");
  std::vector<std::string> values;
  for (const toml::node& entry : *array) {
    const auto value = entry.value<std::string>();
    if (!value) fail(key, "must be a list of strings");
    values.push_back(*value);
  }
  return values;
}

std::vector<std::string> TomlSection::keys() const {
  std::vector<std::string> keys;
  for (const auto& entry : *table_) keys.emplace_back(entry.first.str());
  return keys;
}

TomlSection TomlSection::section(const char* key) {
  const auto* child = get(key, "a table").as_table();
  if (child == nullptr) fail(key, "must be a table");
  return {*child, file_};
}

std::vector<TomlSection> TomlSection::sections(const char* key) {
  std::vector<TomlSection> result;
  const toml::node* node = find(key);
  if (node == nullptr) return result;
  const auto* array = node->as_array();
  if (array == nullptr) fail(key, "must be a list of tables");
  for (const toml::node& entry : *array) {
    if (!entry.is_table()) fail(key, "must be a list of tables");
    result.emplace_back(*entry.as_table(), file_);
  }
  return result;
}

void TomlSection::done() const {
  for (const auto& [key, node] : *table_) {
    if (!read_.contains(std::string(key.str()))) {
      throw error(node, fmt::format("unknown key {}", key.str()));
    }
  }
}

}  // namespace orch::sim
