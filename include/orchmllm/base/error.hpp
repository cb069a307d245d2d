// Error classes. Every failure of the library is one of these; a program's exit code comes from the class.
//
//   InvalidInput    the caller's data or arguments are wrong                        exit code 2
//   Overflow        a cost does not fit into 64 bits (never wrapped)                exit code 2
//   Infeasible      no plan meets the constraints; names the smallest that would    exit code 3
//   TransportError  a peer or a link failed while a plan was executed               exit code 1
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace orch {

class Error : public std::runtime_error {
 public:
  Error(const std::string& message, int exit_code) : std::runtime_error(message), exit_code_(exit_code) {}
  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

class InvalidInput : public Error {
 public:
  explicit InvalidInput(const std::string& message) : Error(message, 2) {}

  /// A fault in a file: `FILE:LINE: what is wrong, what would be right`. Lines count from 1.
  [[nodiscard]] static InvalidInput at(const std::string& file, std::uint64_t line, const std::string& message) {
    return InvalidInput(file + ":" + std::to_string(line) + ": " + message);
  }
};

class Overflow : public Error {
 public:
  explicit Overflow(const std::string& message) : Error(message, 2) {}
};

class Infeasible : public Error {
 public:
  explicit Infeasible(const std::string& message) : Error(message, 3) {}
};

class TransportError : public Error {
 public:
  explicit TransportError(const std::string& message) : Error(message, 1) {}
};

}  // namespace orch
