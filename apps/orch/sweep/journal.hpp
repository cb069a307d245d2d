// What a sweep has finished, beside its output: OUT.journal. A sweep that was killed continues from it.
//
// JSON Lines: what the results depend on (Sweep::identity()), then the result of every finished point, each on disk
// before the next is taken. A line that is cut short or damaged ends the journal there. While a sweep runs it holds a
// lock on the file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "sweep_file.hpp"

namespace orch::sweep {

class Journal {
 public:
  /// Opens or creates. Throws InvalidInput where another sweep writes the same output, or the journal is of a sweep
  /// with another identity, unless it is to be discarded.
  Journal(const std::string& path, const Json& identity, bool discard);
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  ~Journal();

  /// Point → its result, as found when the journal was opened.
  [[nodiscard]] const std::map<std::size_t, std::string>& finished() const { return finished_; }
  void append(const std::string& line);
  void remove();

 private:
  void load(const Json& identity);
  void cut(std::size_t bytes);
  [[noreturn]] void fail() const;

  std::string path_;
  int file_ = -1;
  std::map<std::size_t, std::string> finished_;
};

}  // namespace orch::sweep
