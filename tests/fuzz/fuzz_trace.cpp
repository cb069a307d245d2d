// libFuzzer: any bytes are either a trace or refused with InvalidInput; never a crash, hang or wrapped length.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "models.hpp"
#include "orchmllm/io/trace.hpp"
#include "orchmllm/orchestrate/orchestrator.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const orch::Mllm model = orch::test::plain_model();
  static const orch::Mllm graph = orch::test::fusion_model();
  static const std::string path = [] {
    const int file = memfd_create("trace", 0);
    return "/proc/self/fd/" + std::to_string(file);
  }();
  const int file = std::atoi(path.c_str() + path.rfind('/') + 1);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    orch::PhaseLengths lengths;
    lengths.encoders.resize(model.encoders.size());
    orch::PhaseLengths of_graph;
    const orch::io::TraceInfo info = orch::io::read_trace(path, [&](const orch::Sample& sample) {
      orch::append(lengths, model, sample);
      orch::append(of_graph, graph, sample);
    });
    if (info.samples != lengths.samples()) std::abort();
    std::vector<std::uint32_t> samples(lengths.samples());
    for (std::uint32_t i = 0; i < samples.size(); ++i) samples[i] = i;
    std::vector<std::uint32_t> home(samples.size());
    for (std::uint32_t i = 0; i < home.size(); ++i) home[i] = i % 3;
    const orch::StepPlan plan = orch::plan_step(model, lengths, samples, home, orch::uniform_topology(3, 2));
    for (const orch::PhasePlan& phase : plan.phases) {
      if (phase.assignment.lower_bound > phase.assignment.max_cost()) std::abort();
    }
    for (const orch::Route& route : plan.routes) verify(route.exchange);
  } catch (const orch::Error&) {
  }
  return 0;
}
