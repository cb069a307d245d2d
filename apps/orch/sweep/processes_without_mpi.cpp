#include <cstdlib>

#include "orchmllm/base/error.hpp"
#include "processes.hpp"

namespace orch::sweep {

struct Processes::Sending {};

Processes::Processes() {
  throw InvalidInput(
      "this orch was built without MPI: every process would run the whole sweep; build it again where libopenmpi-dev "
      "is "
      "installed, or start it without mpirun");
}
Processes::~Processes() = default;
void Processes::send(int, std::string) {}
std::optional<Processes::Message> Processes::receive() { return {}; }
void Processes::end_all(int exit_code) { std::_Exit(exit_code); }

}  // namespace orch::sweep
