#include "backend.hpp"

#include "orchmllm/runtime/launch.hpp"
#include "orchmllm/runtime/lone_control.hpp"
#include "orchmllm/runtime/tcp_control.hpp"

namespace orch::apps {

std::unique_ptr<runtime::ControlPlane> find_control(int& argc, char**& argv, const std::string& transport,
                                                    const runtime::MpiOptions& options) {
  const bool mpi = runtime::launched_by_mpi();
  if (mpi && has_mpi()) return mpi_control(argc, argv, options);
  if (const auto launch = runtime::find_launch()) {
    return std::make_unique<runtime::TcpControl>(*launch, options.timeout);
  }
  if (mpi || (transport == "mpi" && has_mpi())) return mpi_control(argc, argv, options);
  return std::make_unique<runtime::LoneControl>();
}

void require_transport(const runtime::ControlPlane& control, const std::string& transport) {
  if (transport == "nccl") {
    require_nccl();
  } else {
    require_mpi(control);
  }
}

std::unique_ptr<Backend> make_backend(runtime::ControlPlane& control, const TransportOptions& options) {
  return options.transport == "nccl" ? nccl_backend(control, options) : mpi_backend(control);
}

}  // namespace orch::apps
