// A sweep, checked and loaded: every point is a simulation that can be run on its own, from several threads at once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "../simulation.hpp"
#include "sweep_file.hpp"

namespace orch::sweep {

class Sweep {
 public:
  /// Reads the file, parses every point as `orch simulate` parses its command line, and reads every input. Throws
  /// InvalidInput as FILE:LINE. `warn`: about the inputs, on standard error.
  Sweep(const std::string& path, bool warn);

  [[nodiscard]] const SweepFile& file() const { return file_; }
  [[nodiscard]] std::size_t size() const { return options_.size(); }
  /// Models, clusters, and every value that is the path of a file.
  [[nodiscard]] std::set<std::string> inputs() const;
  /// What the results depend on: the program, the points' options, the contents of the files.
  [[nodiscard]] const Json& identity() const { return identity_; }
  /// Runs a point; its result, one line of JSON (docs/schemas/sweep.schema.json). Whatever goes wrong is a result.
  [[nodiscard]] std::string run(std::size_t point);

 private:
  void parse(const Point& point);
  void identify();

  SweepFile file_;
  std::vector<apps::SimulateOptions> options_;  ///< of every point
  std::mutex mutex_;                            ///< guards inputs_
  apps::InputStore inputs_;
  Json identity_;
};

}  // namespace orch::sweep
