// libFuzzer: any bytes are either a step plan or refused with an error of ours; what is read is consistent.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "orchmllm/io/plan.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const orch::io::Json json = orch::io::parse_document({reinterpret_cast<const char*>(data), size});
    const orch::StepPlan plan = orch::io::step_plan_from_json(json);
    for (const orch::Route& route : plan.routes) orch::verify(route.exchange);
    for (std::uint32_t rank = 0; rank < plan.ranks(); ++rank) (void)orch::rank_view(plan, rank);
    if (orch::io::step_plan_from_json(orch::io::to_json(plan)).hash != plan.hash) std::abort();
  } catch (const orch::Error&) {
  }
  return 0;
}
