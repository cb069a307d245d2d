// The control plane of a process that is all of its job: nobody to wait for.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "orchmllm/runtime/control.hpp"
#include "orchmllm/runtime/launch.hpp"

namespace orch::runtime {

class LoneControl final : public ControlPlane {
 public:
  [[nodiscard]] std::uint32_t rank() const override { return 0; }
  [[nodiscard]] std::uint32_t ranks() const override { return 1; }
  [[nodiscard]] std::string host() const override { return own_host(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string&, const std::string& mine) override {
    return {mine};
  }
  void barrier(const std::string&) override {}
  void attend(const std::string&) override {}
  [[nodiscard]] std::string ask_around(const std::string&) override { return ""; }
  void give_up(const std::string&) noexcept override {}
  [[noreturn]] void abort(int exit_code) override { std::_Exit(exit_code); }
};

}  // namespace orch::runtime
