#include "backend.hpp"

namespace orch::apps {

std::unique_ptr<Backend> nccl_backend(int&, char**&, const ExecuteOptions&) {
  throw InvalidInput(
      "--transport nccl: this program was built without CUDA and NCCL; build it where the CUDA Toolkit "
      "and NCCL are installed, or take --transport mpi");
}

}  // namespace orch::apps
