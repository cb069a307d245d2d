#include "orchmllm/runtime/launch.hpp"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <vector>

#include "orchmllm/base/error.hpp"

namespace orch::runtime {

namespace {

std::uint32_t number(const std::string& name, const std::string& text, std::uint32_t most) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most) {
    throw InvalidInput("environment: " + name + "=" + text + ": expected a number up to " + std::to_string(most));
  }
  return value;
}

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  [[nodiscard]] std::string text(const std::string& name) const {
    const std::optional<std::string> value = environment_(name);
    if (!value) throw InvalidInput("environment: " + name + " is not set, other variables of a launcher are");
    return *value;
  }
  [[nodiscard]] std::uint32_t required(const std::string& name, std::uint32_t most = 1U << 30U) const {
    return number(name, text(name), most);
  }
  [[nodiscard]] std::uint32_t optional(const std::string& name, std::uint32_t otherwise,
                                       std::uint32_t most = 1U << 30U) const {
    const std::optional<std::string> value = environment_(name);
    return value ? number(name, *value, most) : otherwise;
  }
  [[nodiscard]] bool has(const std::string& name) const { return environment_(name).has_value(); }
  [[nodiscard]] std::string text_or_empty(const std::string& name) const { return environment_(name).value_or(""); }

 private:
  const Environment& environment_;
};

constexpr std::uint32_t largest_port = std::numeric_limits<std::uint16_t>::max();

void require_rank(const Launch& launch) {
  if (launch.ranks == 0 || launch.rank >= launch.ranks) {
    throw InvalidInput("environment: rank " + std::to_string(launch.rank) + " of " + std::to_string(launch.ranks) +
                       " ranks");
  }
}

Launch torch_launch(const Reader& read) {
  Launch launch;
  launch.rank = read.required("RANK");
  launch.ranks = read.required("WORLD_SIZE");
  launch.local_rank = read.optional("LOCAL_RANK", 0);
  launch.address = read.text("MASTER_ADDR");
  std::uint32_t port = read.required("MASTER_PORT", largest_port - 1);
  // torchrun's agent keeps a store of its own at that port.
  if (read.text_or_empty("TORCHELASTIC_USE_AGENT_STORE") == "True") ++port;
  launch.port = static_cast<std::uint16_t>(read.optional("ORCHMLLM_PORT", port, largest_port));
  launch.job = read.text_or_empty("TORCHELASTIC_RUN_ID");
  return launch;
}

Launch slurm_launch(const Reader& read) {
  Launch launch;
  launch.rank = read.required("SLURM_PROCID");
  launch.ranks =
      read.has("SLURM_STEP_NUM_TASKS") ? read.required("SLURM_STEP_NUM_TASKS") : read.required("SLURM_NTASKS");
  launch.local_rank = read.optional("SLURM_LOCALID", 0);
  launch.address = read.has("MASTER_ADDR") ? read.text("MASTER_ADDR") : first_host(read.text("SLURM_STEP_NODELIST"));
  // Steps that share a host must not meet at one port.
  const std::uint32_t job = read.optional("SLURM_JOB_ID", 0, std::numeric_limits<std::uint32_t>::max());
  const std::uint32_t step = read.optional("SLURM_STEP_ID", 0, std::numeric_limits<std::uint32_t>::max());
  const std::uint32_t port = read.optional("MASTER_PORT", 20000 + (job * 31 + step) % 10000, largest_port);
  launch.port = static_cast<std::uint16_t>(read.optional("ORCHMLLM_PORT", port, largest_port));
  launch.job = std::to_string(job) + "." + std::to_string(step);
  return launch;
}

/// Then the variables of other launchers, if there are any, are about the agent: srun or mpirun started that.
bool launched_by_torchrun(const Environment& environment) { return environment("TORCHELASTIC_RUN_ID").has_value(); }

}  // namespace

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == 0) return std::nullopt;
  return value;
}

bool launched_by_mpi(const Environment& environment) {
  if (launched_by_torchrun(environment)) return false;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "MPI_LOCALRANKID"}) {
    if (environment(name)) return true;
  }
  return false;
}

std::optional<Launch> find_launch(const Environment& environment) {
  const Reader read(environment);
  std::optional<Launch> launch;
  if (read.has("RANK") || read.has("WORLD_SIZE")) {
    launch = torch_launch(read);
  } else if (read.has("SLURM_PROCID") && read.has("SLURM_STEP_ID")) {  // a batch script is no step
    launch = slurm_launch(read);
  }
  if (launch) require_rank(*launch);
  return launch;
}

std::uint32_t find_local_rank(const Environment& environment) {
  const Reader read(environment);
  if (launched_by_torchrun(environment)) return read.required("LOCAL_RANK");
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK",
                           "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID", "SLURM_LOCALID"}) {
    if (read.has(name)) return read.required(name);
  }
  return 0;
}

std::string own_host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string first_host(const std::string& node_list) {
  const std::string first = node_list.substr(0, node_list.find(','));
  const std::size_t bracket = first.find('[');
  if (bracket == std::string::npos) return first;
  const std::size_t end = first.find_first_of("-]", bracket);
  std::string host = first.substr(0, bracket) + first.substr(bracket + 1, end - bracket - 1);
  // What follows the bracket is of every host: "n[1-4]-ib".
  const std::size_t closing = node_list.find(']');
  if (closing != std::string::npos) {
    const std::size_t next = node_list.find(',', closing);
    host += node_list.substr(closing + 1, next == std::string::npos ? next : next - closing - 1);
  }
  return host;
}

}  // namespace orch::runtime
