// Instances for solver tests: real-shaped generators, a brute-force oracle, and the shared cases.
#pragma once

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "orchmllm/base/cost.hpp"

namespace orch::test {

/// Smallest largest rank cost over all assignments, by depth-first search with rank symmetry broken: a sample may open
/// at most one new rank. `cost_of(rank_of, ranks)` gives the largest rank cost. For up to about 9 samples.
template <class MaxCost>
[[nodiscard]] Cost brute_force(std::size_t samples, std::uint32_t ranks, MaxCost&& cost_of) {
  std::vector<std::uint32_t> rank_of(samples, 0);
  Cost best = ~Cost{0};
  const auto search = [&](const auto& self, std::size_t sample, std::uint32_t open) -> void {
    if (sample == samples) {
      best = std::min(best, cost_of(std::span<const std::uint32_t>(rank_of)));
      return;
    }
    for (std::uint32_t rank = 0; rank < std::min(ranks, open + 1); ++rank) {
      rank_of[sample] = rank;
      self(self, sample + 1, std::max(open, rank + 1));
    }
  };
  search(search, 0, 0);
  return best;
}

/// Lengths with ties, zeros and a heavy tail.
inline rc::Gen<std::uint64_t> any_length() {
  return rc::gen::oneOf(rc::gen::inRange<std::uint64_t>(0, 12), rc::gen::inRange<std::uint64_t>(0, 2000),
                        rc::gen::inRange<std::uint64_t>(0, 200000));
}

/// Folder of inputs that are not part of the project, or nothing where it is absent (said once, loudly).
inline std::optional<std::filesystem::path> shared_folder() {
  const char* given = std::getenv("ORCHMLLM_SHARED");
  const std::filesystem::path folder = given != nullptr
                                           ? std::filesystem::path(given)
                                           : std::filesystem::path(ORCHMLLM_SOURCE_DIR).parent_path() / "shared";
  if (std::filesystem::is_directory(folder)) return folder;
  std::cerr << "SKIPPED: no folder " << folder << "; set ORCHMLLM_SHARED to run the checks on shared inputs\n";
  return std::nullopt;
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(std::ifstream(path));
}

}  // namespace orch::test
