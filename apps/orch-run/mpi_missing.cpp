#include "backend.hpp"

namespace orch::apps {

namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw InvalidInput(what + ": this program was built without MPI; build it where libopenmpi-dev is installed, or " +
                     "launch ranks with torchrun or srun and take --transport nccl");
}

}  // namespace

bool has_mpi() { return false; }
std::unique_ptr<runtime::ControlPlane> mpi_control(int&, char**&, const runtime::MpiOptions&) {
  refuse("started by an MPI launcher");
}
void require_mpi(const runtime::ControlPlane&) { refuse("--transport mpi"); }
std::unique_ptr<Backend> mpi_backend(runtime::ControlPlane&) { refuse("--transport mpi"); }

}  // namespace orch::apps
