// The control plane through MPI: ranks that mpirun or srun starts.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orchmllm/runtime/control.hpp"
#include "orchmllm/runtime/mpi_transport.hpp"

namespace orch::runtime {

class MpiControl final : public ControlPlane {
 public:
  MpiControl(int& argc, char**& argv, const MpiOptions& options) : mpi_(argc, argv, options) {}

  [[nodiscard]] std::uint32_t rank() const override { return mpi_.rank(); }
  [[nodiscard]] std::uint32_t ranks() const override { return mpi_.ranks(); }
  [[nodiscard]] std::string host() const override { return mpi_.host(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& what, const std::string& mine) override {
    return mpi_.all_gather(what, mine);
  }
  void barrier(const std::string& what) override { mpi_.barrier(what); }
  void attend(const std::string& waiting) override { mpi_.attend(waiting); }
  [[nodiscard]] std::string ask_around(const std::string& waiting) override { return mpi_.ask_around(waiting); }
  void give_up(const std::string& why) noexcept override { mpi_.give_up(why); }
  [[noreturn]] void abort(int exit_code) override { mpi_.abort(exit_code); }

 private:
  MpiTransport mpi_;
};

}  // namespace orch::runtime
