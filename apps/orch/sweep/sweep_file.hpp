// Sweep files (TOML): options of `orch simulate`, some with several values, and the points that they span.
//
//   [run]                               the same at every point
//   model = "mllm-10b"
//   [grid]                              every value with every other
//   strategy = ["none", "orchmllm"]
//   [[zip]]                             lists of one length: first with first, second with second
//   gpus = [64, 128]
//   batch = [16, 8]
//   [[exclude]]                         points at which all of these hold are left out
//   strategy = "none"
//   gpus = [128, 256]                   any of these
//
// Keys of [grid] and whole [[zip]] tables vary in the file's order, the last one fastest. Throws InvalidInput as
// FILE:LINE. Which options there are, and their values, is checked where they are used.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace orch::sweep {

using Json = nlohmann::ordered_json;

/// One option with one value.
struct Setting {
  std::string key;
  Json value;
  std::string text;  ///< the value as on the command line
  std::uint64_t line = 0;
};

using Point = std::vector<Setting>;

struct SweepFile {
  std::string path;
  std::vector<std::string> varied;  ///< keys of [grid] and [[zip]], in the file's order
  std::vector<Point> points;        ///< each: the settings of [run], then those that vary
};

inline constexpr std::size_t most_points = 100'000;

[[nodiscard]] SweepFile read_sweep_file(const std::string& path);

}  // namespace orch::sweep
