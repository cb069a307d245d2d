#include "results_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "../common.hpp"
#include "orchmllm/base/error.hpp"
#include "orchmllm/io/atomic_file.hpp"

namespace orch::sweep {

namespace {

[[nodiscard]] std::string plain(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

[[nodiscard]] std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

void write_csv(const std::vector<Json>& rows, io::AtomicFile& file) {
  std::vector<std::string> columns;
  std::set<std::string> known;
  for (const Json& row : rows) {
    for (const auto& item : row.items()) {
      if (known.insert(item.key()).second) columns.push_back(item.key());
    }
  }
  const auto write_line = [&](const auto& cell_of) {
    std::string line;
    for (const std::string& column : columns) {
      if (&column != &columns.front()) line += ',';
      line += csv_cell(cell_of(column));
    }
    file.write(line + "\n");
  };
  write_line([](const std::string& column) { return column; });
  for (const Json& row : rows) {
    write_line([&](const std::string& column) { return row.contains(column) ? plain(row[column]) : ""; });
  }
}

[[nodiscard]] std::vector<Json> parsed(const std::vector<std::string>& lines) {
  std::vector<Json> rows;
  for (const std::string& line : lines) rows.push_back(Json::parse(line));
  return rows;
}

void sync_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = file >= 0 && ::fsync(file) == 0;
  const std::string why = std::strerror(errno);
  if (file >= 0) ::close(file);
  if (!synced) throw Error(path + ": cannot be written: " + why, 1);
}

/// A figure of a row, scaled, or "-".
[[nodiscard]] std::string figure(const Json& row, const char* name, double scale, int digits) {
  const auto value = row.find(name);
  return value != row.end() && value->is_number() ? fmt::format("{:.{}f}", scale * value->get<double>(), digits) : "-";
}

}  // namespace

void check_results_name(const std::string& path) {
  if (!path.ends_with(".jsonl") && !path.ends_with(".csv")) {
    throw InvalidInput(fmt::format("--out {}: expected a name that ends in .jsonl or .csv", path));
  }
  if (std::filesystem::is_directory(path)) throw InvalidInput(path + ": is a folder, expected a file to write");
}

void write_results(const std::vector<std::string>& lines, const std::string& path) {
  io::AtomicFile file(path);
  if (path.ends_with(".csv")) {
    write_csv(parsed(lines), file);
  } else {
    for (const std::string& line : lines) file.write(line + "\n");
  }
  file.commit();
  sync_file(path);
}

void print_results(const std::vector<std::string>& varied, const std::vector<std::string>& lines) {
  const std::vector<Json> rows = parsed(lines);
  std::vector<std::string> head{"point"};
  head.insert(head.end(), varied.begin(), varied.end());
  for (const char* name : {"MFU %", "step s", "tokens/s/GPU", "idle %", "peak memory", "status"})
    head.emplace_back(name);
  std::vector<std::vector<std::string>> table{head};
  for (const Json& row : rows) {
    std::vector<std::string> cells{plain(row["point"])};
    for (const std::string& key : varied) cells.push_back(plain(row[key]));
    cells.push_back(figure(row, "mfu", 100, 1));
    cells.push_back(figure(row, "step_seconds", 1, 3));
    cells.push_back(figure(row, "tokens_per_second_per_gpu", 1, 0));
    cells.push_back(figure(row, "idle_fraction", 100, 1));
    const double memory = row.value("peak_memory_bytes", 0.0);
    cells.push_back(memory > 0 ? apps::bytes_text(memory) : "-");
    cells.push_back(row["status"]);
    table.push_back(std::move(cells));
  }
  apps::print_table(table);
  for (const Json& row : rows) {
    if (row.contains("message")) fmt::print("point {}: {}\n", plain(row["point"]), plain(row["message"]));
  }
}

}  // namespace orch::sweep
