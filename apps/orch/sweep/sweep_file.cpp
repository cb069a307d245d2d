#include "sweep_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "orchmllm/base/error.hpp"
#include "toml_reader.hpp"

namespace orch::sweep {

namespace {

using Entry = std::pair<std::string, const toml::node*>;

[[nodiscard]] std::uint64_t line_of(const toml::node& node) { return node.source().begin.line; }

[[nodiscard]] bool stands_before(const toml::node& a, const toml::node& b) {
  const toml::source_position first = a.source().begin;
  const toml::source_position second = b.source().begin;
  return std::pair{first.line, first.column} < std::pair{second.line, second.column};
}

/// toml++ keeps tables in alphabetic order.
[[nodiscard]] std::vector<Entry> in_file_order(const toml::table& table) {
  std::vector<Entry> entries;
  for (const auto& [key, node] : table) entries.emplace_back(key.str(), &node);
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return stands_before(*a.second, *b.second); });
  return entries;
}

/// Options that vary together: row by row.
struct Axis {
  const toml::node* place = nullptr;
  std::vector<std::string> keys;
  std::vector<std::vector<Setting>> rows;
};

/// Left out where all hold.
struct Exclusion {
  std::map<std::string, std::set<std::string>> texts;

  [[nodiscard]] bool holds(const Point& point) const {
    const auto fits = [&](const Setting& setting) {
      const auto wanted = texts.find(setting.key);
      return wanted != texts.end() && wanted->second.contains(setting.text);
    };
    return static_cast<std::size_t>(std::count_if(point.begin(), point.end(), fits)) == texts.size();
  }
};

class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path) {}

  [[nodiscard]] SweepFile read() {
    for (const Entry& entry : in_file_order(file_.table)) {
      if (entry.first == "run") {
        read_run(table(entry.first, *entry.second));
      } else if (entry.first == "grid") {
        read_grid(table(entry.first, *entry.second));
      } else if (entry.first == "zip") {
        for (const toml::table* zip : tables(entry.first, *entry.second)) read_zip(*zip);
      } else if (entry.first != "exclude") {
        fail(*entry.second, fmt::format("unknown key {}, expected run, grid, zip or exclude", entry.first));
      }
    }
    std::sort(axes_.begin(), axes_.end(),
              [](const Axis& a, const Axis& b) { return stands_before(*a.place, *b.place); });
    const std::vector<Exclusion> exclusions = read_exclusions();

    SweepFile result;
    result.path = file_.path;
    for (const Axis& axis : axes_) result.varied.insert(result.varied.end(), axis.keys.begin(), axis.keys.end());
    span_points(exclusions, result.points);
    if (result.points.empty()) throw InvalidInput::at(file_.path, 1, "exclude leaves no point");
    return result;
  }

 private:
  [[noreturn]] void fail(const toml::node& at, const std::string& message) const {
    throw InvalidInput::at(file_.path, line_of(at), message);
  }

  [[nodiscard]] const toml::table& table(const std::string& key, const toml::node& node) const {
    if (!node.is_table()) fail(node, fmt::format("{} must be a table: [{}]", key, key));
    return *node.as_table();
  }

  [[nodiscard]] std::vector<const toml::table*> tables(const std::string& key, const toml::node& node) const {
    std::vector<const toml::table*> result;
    if (!node.is_array_of_tables()) fail(node, fmt::format("{} must be a list of tables: [[{}]]", key, key));
    for (const toml::node& entry : *node.as_array()) result.push_back(entry.as_table());
    return result;
  }

  [[nodiscard]] Setting setting(const std::string& key, const toml::node& node) const {
    Setting result{key, {}, {}, line_of(node)};
    if (const auto* text = node.as_string()) {
      result.value = result.text = text->get();
    } else if (const auto* integer = node.as_integer()) {
      result.value = integer->get();
      result.text = fmt::format("{}", integer->get());
    } else if (const auto* number = node.as_floating_point(); number != nullptr && std::isfinite(number->get())) {
      result.value = number->get();
      result.text = fmt::format("{}", number->get());
    } else if (const auto* boolean = node.as_boolean()) {
      result.value = boolean->get();
      result.text = boolean->get() ? "true" : "false";
    } else {
      fail(node, key + " must be a string, a number, true or false");
    }
    if (result.text.empty()) fail(node, key + " must not be empty");
    return result;
  }

  [[nodiscard]] std::vector<Setting> list(const std::string& key, const toml::node& node) const {
    const toml::array* array = node.as_array();
    if (array == nullptr || array->empty()) fail(node, key + " must be a list of values");
    std::vector<Setting> result;
    for (const toml::node& value : *array) result.push_back(setting(key, value));
    return result;
  }

  /// Each key stands once.
  void claim(const std::string& key, const toml::node& node) {
    const auto [earlier, is_new] = lines_.emplace(key, line_of(node));
    if (!is_new) fail(node, fmt::format("{} is already set in line {}", key, earlier->second));
  }

  void read_run(const toml::table& run) {
    for (const Entry& entry : in_file_order(run)) {
      claim(entry.first, *entry.second);
      fixed_.push_back(setting(entry.first, *entry.second));
    }
  }

  void read_grid(const toml::table& grid) {
    for (const Entry& entry : in_file_order(grid)) {
      claim(entry.first, *entry.second);
      Axis axis{entry.second, {entry.first}, {}};
      std::set<std::string> seen;
      for (Setting& value : list(entry.first, *entry.second)) {
        if (!seen.insert(value.text).second) {
          throw InvalidInput::at(file_.path, value.line, fmt::format("{} has {} twice", entry.first, value.text));
        }
        axis.rows.push_back({std::move(value)});
      }
      axes_.push_back(std::move(axis));
    }
  }

  void read_zip(const toml::table& zip) {
    Axis axis{&zip, {}, {}};
    for (const Entry& entry : in_file_order(zip)) {
      claim(entry.first, *entry.second);
      std::vector<Setting> values = list(entry.first, *entry.second);
      if (axis.keys.empty()) axis.rows.resize(values.size());
      if (values.size() != axis.rows.size()) {
        fail(*entry.second, fmt::format("{} has {} values, expected {} as {} has", entry.first, values.size(),
                                        axis.rows.size(), axis.keys.front()));
      }
      axis.keys.push_back(entry.first);
      for (std::size_t row = 0; row < values.size(); ++row) axis.rows[row].push_back(std::move(values[row]));
    }
    if (axis.keys.empty()) fail(zip, "zip is empty, expected lists of values");
    axes_.push_back(std::move(axis));
  }

  [[nodiscard]] std::vector<Exclusion> read_exclusions() const {
    std::vector<Exclusion> result;
    const toml::node* node = file_.table.get("exclude");
    if (node == nullptr) return result;
    std::map<std::string, std::set<std::string>> known;
    for (const Setting& one : fixed_) known[one.key].insert(one.text);
    for (const Axis& axis : axes_) {
      for (const std::vector<Setting>& row : axis.rows) {
        for (const Setting& one : row) known[one.key].insert(one.text);
      }
    }
    for (const toml::table* exclude : tables("exclude", *node)) {
      Exclusion exclusion;
      for (const Entry& entry : in_file_order(*exclude)) {
        const std::vector<Setting> values = entry.second->is_array()
                                                ? list(entry.first, *entry.second)
                                                : std::vector<Setting>{setting(entry.first, *entry.second)};
        for (const Setting& value : values) {
          if (!known[value.key].contains(value.text)) {
            throw InvalidInput::at(file_.path, value.line,
                                   fmt::format("{} is never {} in this sweep", value.key, value.text));
          }
          exclusion.texts[value.key].insert(value.text);
        }
      }
      if (exclusion.texts.empty()) fail(*exclude, "exclude is empty, expected keys with values");
      result.push_back(std::move(exclusion));
    }
    return result;
  }

  void span_points(const std::vector<Exclusion>& exclusions, std::vector<Point>& points) const {
    std::size_t combinations = 1;
    for (const Axis& axis : axes_) {
      combinations *= axis.rows.size();
      if (combinations > most_points) {
        fail(*axis.place, fmt::format("the sweep has more than {} points", most_points));
      }
    }
    for (std::size_t number = 0; number < combinations; ++number) {
      Point point = fixed_;
      std::size_t block = combinations;
      for (const Axis& axis : axes_) {
        block /= axis.rows.size();
        const std::vector<Setting>& row = axis.rows[number / block % axis.rows.size()];
        point.insert(point.end(), row.begin(), row.end());
      }
      const auto holds = [&](const Exclusion& exclusion) { return exclusion.holds(point); };
      if (std::none_of(exclusions.begin(), exclusions.end(), holds)) points.push_back(std::move(point));
    }
  }

  sim::TomlFile file_;
  std::map<std::string, std::uint64_t> lines_;
  std::vector<Setting> fixed_;
  std::vector<Axis> axes_;
};

}  // namespace

SweepFile read_sweep_file(const std::string& path) { return Reader(path).read(); }

}  // namespace orch::sweep
