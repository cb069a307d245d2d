#include "balance_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "importers/csv_reader.hpp"
#include "orchmllm/base/error.hpp"

namespace orch::apps {

namespace {

constexpr std::string_view integer_range = "expected an integer from 0 to 18446744073709551615";
constexpr std::string_view column_names = "expected length, weight, group or home";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r";
  const std::size_t first = text.find_first_not_of(space);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(space) + 1 - first);
}

bool known_column(std::string_view name) {
  return name == "length" || name == "weight" || name == "group" || name == "home";
}

/// Appends a value to a column. Throws InvalidInput without file and line.
void add(BalanceTable& table, const std::string& column, std::uint64_t value, std::uint32_t ranks) {
  if (column == "length") return table.length.push_back(value);
  if (column == "weight") return table.weight.push_back(value);
  if (column == "home") {
    if (value >= ranks)
      throw InvalidInput(fmt::format("home is rank {}, but there are {} ranks (--ranks)", value, ranks));
    return table.home.push_back(static_cast<std::uint32_t>(value));
  }
  if (value > std::numeric_limits<std::uint32_t>::max()) {
    throw InvalidInput(fmt::format("group is {}, expected at most 4294967295", value));
  }
  table.group.push_back(static_cast<std::uint32_t>(value));
}

/// Lines of a text in memory, without white space at their ends, for CsvReader.
class TextLines {
 public:
  TextLines(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {}

  [[nodiscard]] std::optional<std::string_view> next() {
    if (text_.empty()) return std::nullopt;
    const std::string_view line = text_.substr(0, text_.find('\n'));
    text_.remove_prefix(std::min(line.size() + 1, text_.size()));
    ++line_;
    return trimmed(line);
  }
  [[nodiscard]] std::uint64_t line() const { return line_; }
  [[nodiscard]] const std::string& path() const { return name_; }

 private:
  std::string_view text_;
  std::string name_;
  std::uint64_t line_ = 0;
};

/// Names of the columns, if this is a header.
std::optional<std::vector<std::string>> header(const std::vector<std::string>& fields) {
  std::vector<std::string> names;
  for (const std::string& field : fields) {
    names.emplace_back(trimmed(field));
    for (char& c : names.back()) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const bool is_header = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return !name.empty() && std::isalpha(static_cast<unsigned char>(name.front())) != 0;
  });
  if (!is_header) return std::nullopt;
  for (const std::string& name : names) {
    if (!known_column(name)) throw InvalidInput(fmt::format("column \"{}\", {}", name, column_names));
    if (std::count(names.begin(), names.end(), name) > 1)
      throw InvalidInput(fmt::format("column {} stands twice", name));
  }
  if (std::find(names.begin(), names.end(), "length") == names.end()) throw InvalidInput("no column length");
  return names;
}

std::uint64_t to_integer(const std::string& field, const std::string& column) {
  const std::string_view text = trimmed(field);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw InvalidInput(fmt::format("{} is \"{}\", {}", column, text, integer_range));
  }
  return value;
}

/// One length a line, or CSV with a header.
BalanceTable read_lines(const std::string& text, const std::string& name, std::uint32_t ranks) {
  BalanceTable table;
  std::optional<std::vector<std::string>> columns;
  CsvReader rows(TextLines(text, name));
  while (rows.next()) {
    try {
      if (!columns) {
        columns = header(rows.fields());
        if (columns) continue;
        if (rows.fields().size() > 1)
          throw InvalidInput("several columns without a header, " + std::string(column_names));
        columns = {"length"};
      }
      for (std::size_t i = 0; i < columns->size(); ++i) {
        add(table, (*columns)[i], to_integer(rows.fields()[i], (*columns)[i]), ranks);
      }
    } catch (const InvalidInput& error) {
      throw InvalidInput::at(name, rows.line(), error.what());
    }
  }
  return table;
}

/// Takes the events of a list of lengths, or of an object with lists.
class JsonTable : public nlohmann::json::json_sax_t {
 public:
  JsonTable(BalanceTable& table, const std::string& text, std::string name, std::uint32_t ranks)
      : table_(table), text_(text), name_(std::move(name)), ranks_(ranks), stream_(text) {}

  void read() { nlohmann::json::sax_parse(stream_, this); }

  bool null() override { refuse("null"); }
  bool boolean(bool value) override { refuse(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { refuse(std::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& token) override { refuse(token); }
  bool string(string_t& value) override { refuse("\"" + value + "\""); }
  bool binary(binary_t& /*value*/) override { refuse("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_list_) refuse(std::to_string(value));
    try {
      add(table_, column_, value, ranks_);
    } catch (const InvalidInput& error) {
      fail(error.what());
    }
    ++index_;
    return true;
  }

  bool start_array(std::size_t /*size*/) override {
    if (in_list_) refuse("a list");
    in_list_ = true;
    index_ = 0;
    return true;
  }
  bool end_array() override {
    in_list_ = false;
    return true;
  }
  bool start_object(std::size_t /*size*/) override {
    if (in_list_ || !column_names_.empty()) refuse("an object");
    column_.clear();
    return true;
  }
  bool end_object() override { return true; }
  bool key(string_t& name) override {
    if (!known_column(name)) fail(fmt::format("key \"{}\", {}", name, column_names));
    if (std::find(column_names_.begin(), column_names_.end(), name) != column_names_.end()) {
      fail(fmt::format("key \"{}\" stands twice", name));
    }
    column_ = name;
    column_names_.push_back(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    fail(fmt::format("not JSON at byte {}", position));
  }

 private:
  /// The token that the parser has just read is not what is expected there.
  [[noreturn]] void refuse(const std::string& token) {
    if (!in_list_) fail(fmt::format("{} is {:.60}, expected a list of integers", column_, token));
    fail(fmt::format("{}[{}] is {:.60}, {}", column_, index_, token, integer_range));
  }

  /// Behind a number the parser has read one byte more, which may end the line.
  [[noreturn]] void fail(const std::string& message) {
    const auto read = static_cast<std::ptrdiff_t>(stream_.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in));
    const auto line = 1 + std::count(text_.begin(), text_.begin() + std::max<std::ptrdiff_t>(0, read - 1), '\n');
    throw InvalidInput::at(name_, static_cast<std::uint64_t>(line), message);
  }

  BalanceTable& table_;
  const std::string& text_;
  std::string name_;
  std::uint32_t ranks_;
  std::istringstream stream_;
  std::string column_ = "length";
  std::vector<std::string> column_names_;  ///< of an object, so far
  std::size_t index_ = 0;                  ///< in the list
  bool in_list_ = false;
};

/// Throws InvalidInput above 1 GiB.
std::string read_all(std::istream& stream, const std::string& name) {
  constexpr std::size_t most = std::size_t{1} << 30U;
  std::string text;
  std::vector<char> part(std::size_t{1} << 20U);
  while (stream.read(part.data(), static_cast<std::streamsize>(part.size())) || stream.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(stream.gcount()));
    if (text.size() > most) throw InvalidInput(name + ": larger than 1 GiB");
  }
  return text;
}

std::string read_text(const std::string& file) {
  if (file == "-") return read_all(std::cin, "standard input");
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) throw InvalidInput(file + ": is a folder, expected a file");
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw InvalidInput(file + ": no such file");
  return read_all(stream, file);
}

}  // namespace

BalanceTable read_balance_table(const std::string& file, std::uint32_t ranks) {
  const std::string name = file == "-" ? "standard input" : file;
  const std::string text = read_text(file);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  BalanceTable table;
  if (first != std::string::npos && (text[first] == '[' || text[first] == '{')) {
    JsonTable(table, text, name, ranks).read();
  } else {
    table = read_lines(text, name, ranks);
  }
  for (const auto& [column, size] : {std::pair{"weight", table.weight.size()}, std::pair{"group", table.group.size()},
                                     std::pair{"home", table.home.size()}}) {
    if (size != 0 && size != table.length.size()) {
      throw InvalidInput(fmt::format("{}: {} values of {} for {} lengths", name, size, column, table.length.size()));
    }
  }
  return table;
}

}  // namespace orch::apps
