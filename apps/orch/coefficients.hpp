// Coefficients of a cluster file that can be fitted to measured runs, by their keys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "orchmllm/sim/cluster.hpp"

namespace orch::apps {

struct Coefficient {
  std::string key;  ///< as in the file, tables separated by dots
  double low = 0;   ///< in the file's unit
  double high = 0;
  double unit = 1;  ///< of the file, in the simulator's
  double& (*in)(sim::Cluster&);
};

[[nodiscard]] const std::vector<Coefficient>& coefficients();
/// Throws InvalidInput that lists the known keys.
[[nodiscard]] const Coefficient& coefficient(const std::string& key);

/// The text of a cluster file with another value for a key that it has, everything else as it was. Throws InvalidInput
/// if the file lacks the key.
[[nodiscard]] std::string with_value(const std::string& path, const std::string& text, const std::string& key,
                                     double value);

}  // namespace orch::apps
