// A folder of a test's own, gone when the test ends.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace orch::test {

class Scratch {
 public:
  /// `name` tells tests apart that run at the same time.
  explicit Scratch(const std::string& name)
      : folder_(std::filesystem::temp_directory_path() / ("orchmllm-" + name + "-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::filesystem::remove_all(folder_); }

  /// Writes a file; its path.
  [[nodiscard]] std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace orch::test
