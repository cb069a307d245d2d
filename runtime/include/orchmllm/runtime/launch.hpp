// Who this process is in its job, from the variables that launchers set.
//
// torchrun and other launchers of PyTorch set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; srun sets
// SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID and the step's nodes, whose first one has rank 0. Ranks of mpirun ask MPI.
// The launcher nearest to the process counts: srun and mpirun may start torchrun's agents, one on each node.
// Complexity: O(1). Throws InvalidInput for variables that are no numbers, or only some of which are there.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace orch::runtime {

/// A process of a job whose ranks meet through a TCP store.
struct Launch {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t local_rank = 0;
  std::string address;     ///< of the host of rank 0
  std::uint16_t port = 0;  ///< of the store, on that host
  std::string job;         ///< the same in all processes of the job; may be empty
};

/// A variable of the environment, if it is there and not empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

[[nodiscard]] std::optional<std::string> process_environment(const std::string& name);

/// Whether an MPI launcher started this process.
[[nodiscard]] bool launched_by_mpi(const Environment& environment = process_environment);

/// Nothing if the environment speaks of no job.
[[nodiscard]] std::optional<Launch> find_launch(const Environment& environment = process_environment);

/// Number of the rank on its host, whichever launcher: the number of its GPU. 0 if nothing says so.
[[nodiscard]] std::uint32_t find_local_rank(const Environment& environment = process_environment);

/// Name of this host, as topologies have it.
[[nodiscard]] std::string own_host();

/// "node003" of "node[003-007,012]", "a1" of "a1,b2".
[[nodiscard]] std::string first_host(const std::string& node_list);

}  // namespace orch::runtime
