#include "sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <new>

#include "orchmllm/base/error.hpp"
#include "orchmllm/base/hash.hpp"
#include "orchmllm/version.hpp"
#include "toml_reader.hpp"

namespace orch::sweep {

namespace {

/// The option of a key, or nothing where a sweep has none of that name.
[[nodiscard]] const CLI::Option* option_of(const CLI::App& command, const std::string& key) {
  const CLI::Option* option = command.get_option_no_throw("--" + key);
  if (option == nullptr || option == command.get_help_ptr() || option->get_group() == apps::outputs_group)
    return nullptr;
  return option;
}

[[nodiscard]] std::string option_names(const CLI::App& command) {
  std::string names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (option_of(command, name) != nullptr) names += (names.empty() ? "" : ", ") + name;
    }
  }
  return names;
}

/// The line of what a message of the command line's parser is about; without any, line 1.
[[nodiscard]] std::uint64_t line_of(const std::string& message, const Point& point, const CLI::App& command) {
  for (const Setting& setting : point) {
    if (message.find(option_of(command, setting.key)->get_name()) != std::string::npos) return setting.line;
  }
  return 1;
}

[[nodiscard]] std::uint64_t line_of_key(const std::string& key, const Point& point) {
  const auto found = std::find_if(point.begin(), point.end(), [&](const Setting& one) { return one.key == key; });
  return found != point.end() ? found->line : 1;
}

/// Adds the line of the sweep file to errors.
template <typename Check>
void at_line(const std::string& file, std::uint64_t line, const Check& check) {
  try {
    check();
  } catch (const InvalidInput& error) {
    throw InvalidInput::at(file, line, error.what());
  }
}

[[nodiscard]] std::uint64_t content_hash(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Fingerprint hash;
  std::string part(std::size_t{1} << 20U, '\0');
  while (file) {
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    hash.add_bytes({part.data(), static_cast<std::size_t>(file.gcount())});
  }
  if (!file.eof()) throw Error(path + ": cannot be read", 1);
  return hash.value();
}

/// {"a": {"b": 1}} as "a.b": 1; lists, which are of steps, are left out, and names that the row already has.
void add_flat(Json& row, const Json& result, const std::string& prefix = "") {
  for (const auto& item : result.items()) {
    const std::string name = prefix + item.key();
    if (item.value().is_object()) {
      add_flat(row, item.value(), name + ".");
    } else if (!item.value().is_array() && !row.contains(name)) {
      row[name] = item.value();
    }
  }
}

}  // namespace

Sweep::Sweep(const std::string& path, bool warn) : file_(read_sweep_file(path)), inputs_(warn) {
  for (const Point& point : file_.points) parse(point);
  identify();
}

void Sweep::parse(const Point& point) {
  CLI::App command;
  apps::SimulateOptions options;
  apps::add_simulate_options(command, options);
  std::vector<std::string> arguments;
  for (const Setting& setting : point) {
    if (option_of(command, setting.key) == nullptr) {
      throw InvalidInput::at(
          file_.path, setting.line,
          fmt::format("no option of a sweep is called {}, expected one of {}", setting.key, option_names(command)));
    }
    arguments.push_back(fmt::format("--{}={}", setting.key, setting.text));
  }
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    command.parse(arguments);
  } catch (const CLI::ParseError& error) {
    throw InvalidInput::at(file_.path, line_of(error.what(), point, command), error.what());
  }
  at_line(file_.path, line_of_key("model", point), [&] { inputs_.model(options.model); });
  at_line(file_.path, line_of_key("cluster", point), [&] { inputs_.cluster(options.cluster); });
  at_line(file_.path, line_of_key("trace", point),
          [&] { inputs_.trace(options.trace, options.model, options.max_text); });
  options_.push_back(std::move(options));
}

std::set<std::string> Sweep::inputs() const {
  std::set<std::string> models;
  std::set<std::string> clusters;
  for (const apps::SimulateOptions& options : options_) {
    models.insert(options.model);
    clusters.insert(options.cluster);
  }
  std::set<std::string> values;
  for (const Point& point : file_.points) {
    for (const Setting& setting : point) values.insert(setting.text);
  }
  std::set<std::string> paths;
  for (const std::string& name : models) paths.insert(sim::find_file("models", name));
  for (const std::string& name : clusters) {
    for (const std::string& path : sim::cluster_files(name)) paths.insert(path);
  }
  for (const std::string& value : values) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(value, ignored)) paths.insert(value);
  }
  return paths;
}

void Sweep::identify() {
  Fingerprint points;
  for (const Point& point : file_.points) {
    points.add(point.size());
    for (const Setting& setting : point) points.add_bytes(setting.key).add_bytes(setting.text);
  }
  identity_ = {{"schema", "orchmllm.sweep-journal/1"},
               {"program", ORCHMLLM_VERSION " " + hex(content_hash("/proc/self/exe"))},
               {"points", fmt::format("{} {}", file_.points.size(), hex(points.value()))},
               {"files", Json::object()}};
  for (const std::string& path : inputs()) identity_["files"][path] = hex(content_hash(path));
}

std::string Sweep::run(std::size_t point) {
  Json row{{"schema", "orchmllm.sweep/1"}, {"version", ORCHMLLM_VERSION}, {"point", point}};
  const std::vector<std::string>& varied = file_.varied;
  for (const Setting& setting : file_.points[point]) {
    if (std::find(varied.begin(), varied.end(), setting.key) != varied.end()) row[setting.key] = setting.value;
  }
  const auto ended = [&](const char* status, const char* message) {
    row["status"] = status;
    row["message"] = message;
  };
  try {
    const apps::RunInputs inputs = [&] {
      const std::lock_guard lock(mutex_);
      return inputs_.get(options_[point]);
    }();
    const Json result = apps::simulation_json(options_[point], inputs);
    row["status"] = result.value("oom", false) ? "oom" : "ok";
    add_flat(row, result);
  } catch (const Infeasible& error) {
    ended("infeasible", error.what());
  } catch (const std::bad_alloc&) {
    ended("error", "not enough memory for a setting of this size");
  } catch (const std::exception& error) {
    ended("error", error.what());
  }
  return row.dump();
}

}  // namespace orch::sweep
