#include "backend.hpp"

namespace orch::apps {

void require_nccl() {
  throw InvalidInput(
      "--transport nccl: this program was built without CUDA and NCCL; build it where the CUDA Toolkit "
      "and NCCL are installed, or take --transport mpi");
}

std::unique_ptr<Backend> nccl_backend(runtime::ControlPlane&, const TransportOptions&) {
  require_nccl();
  return nullptr;
}

}  // namespace orch::apps
