// Ranks agree before they act: what fails on one rank fails on all with the same error, and what must be equal on all
// ranks is compared, the odd ones named.
// Complexity: one all-gather of the texts. Every rank comes to the same verdict.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <map>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/base/error.hpp"
#include "orchmllm/runtime/transport.hpp"

namespace orch::runtime {

/// "rank 2", "ranks 0, 2 and 5": eight of them at most.
[[nodiscard]] inline std::string ranks_text(const std::set<std::uint32_t>& ranks) {
  constexpr std::size_t most = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t i = 0;
  for (const std::uint32_t rank : ranks) {
    if (i > 0) text += i + 1 == ranks.size() || i == most ? " and " : ", ";
    if (i == most) return text + std::to_string(ranks.size() - most) + " more";
    text += std::to_string(rank);
    ++i;
  }
  return text;
}

/// An error that every rank of the job throws, at the same place and in the same words.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Transports, and control planes alone.
template <class T>
concept Gathers = requires(T& transport, const std::string& text) {
  { transport.all_gather(text, text) } -> std::same_as<std::vector<std::string>>;
};

/// Gathers what `say()` returns on every rank. If it throws on any of them, all throw an AgreedError with the
/// first such rank's words and exit code, and the ranks that have it.
template <Gathers T, class Say>
[[nodiscard]] std::vector<std::string> agree(T& transport, const std::string& what, Say&& say) {
  std::string mine;
  try {
    mine = "+" + say();
  } catch (const TransportError&) {
    throw;
  } catch (const Error& error) {
    mine = std::to_string(error.exit_code()) + error.what();
  } catch (const std::bad_alloc&) {
    mine = "1not enough memory for an input or setting of this size";
  } catch (const std::exception& error) {
    mine = std::string("1") + error.what();
  }
  std::vector<std::string> said = transport.all_gather(what, mine);
  std::set<std::uint32_t> failed;
  for (std::uint32_t rank = 0; rank < said.size(); ++rank) {
    if (said[rank][0] != '+' && (failed.empty() || said[rank] == said[*failed.begin()])) failed.insert(rank);
  }
  if (!failed.empty()) {
    const std::string& error = said[*failed.begin()];
    const std::string where = failed.size() == said.size() ? "" : "on " + ranks_text(failed) + ": ";
    throw AgreedError(where + error.substr(1), error[0] - '0');
  }
  for (std::string& text : said) text.erase(0, 1);
  return said;
}

/// Throws an AgreedError (bad input) if what the ranks say differs: `name` is what they say it of.
inline void require_equal(const std::string& name, const std::vector<std::string>& said) {
  std::map<std::string, std::set<std::uint32_t>> ranks_of;
  for (std::uint32_t rank = 0; rank < said.size(); ++rank) ranks_of[said[rank]].insert(rank);
  if (ranks_of.size() <= 1) return;
  // The value of most ranks is taken to be meant, of two such that of the lowest rank.
  auto meant = ranks_of.begin();
  for (auto it = ranks_of.begin(); it != ranks_of.end(); ++it) {
    if (std::pair(it->second.size(), -std::int64_t{*it->second.begin()}) >
        std::pair(meant->second.size(), -std::int64_t{*meant->second.begin()})) {
      meant = it;
    }
  }
  std::string text = name + " differs between ranks: " + meant->first + " on " + ranks_text(meant->second);
  for (const auto& [value, ranks] : ranks_of) {
    if (value != meant->first) text += ", but " + value + " on " + ranks_text(ranks);
  }
  throw AgreedError(text, 2);
}

}  // namespace orch::runtime
