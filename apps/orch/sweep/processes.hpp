// Processes that a launcher (mpirun, srun) started together, and messages between them. The only interface to MPI;
// without it (processes_without_mpi.cpp) the constructor throws. Called from one thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <list>
#include <memory>
#include <optional>
#include <string>

namespace orch::sweep {

/// Whether a launcher says that this process is one of several. Open MPI, MPICH and Slurm's PMI-2 tell how many there
/// are; PMIx alone only that there may be more.
[[nodiscard]] inline bool one_of_several_processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* size = std::getenv(name)) return std::atoi(size) > 1;
  }
  return std::getenv("PMIX_RANK") != nullptr;
}

class Processes {
 public:
  Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  /// Ends orderly, which waits for all others.
  ~Processes();

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  /// Returns at once, also where the other process is no more.
  void send(int to, std::string text);

  struct Message {
    int from = 0;
    std::string text;
  };
  /// The next message that has come, if any.
  [[nodiscard]] std::optional<Message> receive();

  /// Ends all processes.
  [[noreturn]] void end_all(int exit_code);

 private:
  struct Sending;
  void drop_sent();

  int rank_ = 0;
  int size_ = 1;
  std::list<std::unique_ptr<Sending>> sending_;
};

}  // namespace orch::sweep
