// Synthetic traces from profiles of format 2.
//
// Sample i is drawn from a random stream of its own (seed, i), so blocks of samples are drawn in parallel and the
// trace does not depend on the number of threads, nor a sample on how many come after it. Complexity: O(units) a
// sample, O(n²) for n correlated quantities.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "orchmllm/base/random.hpp"
#include "profile.hpp"

namespace orch::apps {

class SampleGenerator {
 public:
  SampleGenerator(TaskProfiles profile, std::uint64_t seed);

  /// Appends the lines of samples begin … end − 1.
  void append(std::uint64_t begin, std::uint64_t end, std::string& out) const;

  [[nodiscard]] const TaskProfiles& profile() const { return profile_; }

 private:
  using Draws = std::array<double, most_quantities>;
  /// Kinds of the units of one sample, as `order` names them.
  using Kinds = std::vector<const std::string*>;

  void append_sample(std::uint64_t index, std::string& out, Kinds& kinds) const;
  /// Where each of a task's quantities stands in its distribution.
  void draw(const TaskLaws& task, Random& random, Draws& u) const;

  TaskProfiles profile_;
  std::uint64_t seed_;
  std::vector<double> until_;        ///< task → sum of weights up to it
  std::vector<std::string> begins_;  ///< task → `","task":"…","text":`
};

/// Writes a trace (compressed as its name says), whole or not at all. `threads` = 0: all cores.
void generate_samples(const SampleGenerator& generator, std::uint64_t samples, unsigned threads,
                      const std::string& path);

}  // namespace orch::apps
