// libFuzzer: any bytes are a table of lengths, of measured runs or of measured memory, a sweep file, or refused with
// InvalidInput; what is read keeps its promises.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "balance_table.hpp"
#include "measured_runs.hpp"
#include "orchmllm/base/error.hpp"
#include "sweep/sweep_file.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

template <class Read>
void attempt(Read&& read) {
  try {
    read();
  } catch (const orch::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = memfd_create("table", 0);
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  attempt([&] {
    const orch::apps::BalanceTable table = orch::apps::read_balance_table(path, 4);
    require(table.home.empty() || table.home.size() == table.length.size());
    require(std::all_of(table.home.begin(), table.home.end(), [](std::uint32_t rank) { return rank < 4; }));
  });
  attempt([&] {
    for (const auto& run : orch::apps::read_runs(path)) {
      require(run.tokens_per_second_per_gpu > 0 && run.gpus > 0 && run.architecture.llm.layers > 0);
    }
  });
  attempt([&] {
    for (const auto& row : orch::apps::read_memory(path)) require(row.gpus > 0);
  });
  attempt([&] {
    const orch::sweep::SweepFile sweep = orch::sweep::read_sweep_file(path);
    require(!sweep.points.empty() && sweep.points.size() <= orch::sweep::most_points);
  });
  return 0;
}
