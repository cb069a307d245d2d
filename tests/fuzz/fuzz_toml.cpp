// libFuzzer: any bytes are a model, a cluster, a profile (whose samples are valid then), or refused with InvalidInput.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "orchmllm/io/trace.hpp"
#include "orchmllm/model/encoder_graph.hpp"
#include "orchmllm/model/phase_lengths.hpp"
#include "orchmllm/sim/cluster.hpp"
#include "orchmllm/sim/kernels.hpp"
#include "orchmllm/sim/model_file.hpp"
#include "orchmllm/sim/workload.hpp"
#include "profile.hpp"
#include "sample_generator.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = memfd_create("toml", 0);
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    const orch::Mllm model = orch::sim::load_model(path);
    (void)orch::sim::fsdp_units(orch::sim::phase_shapes(model), 1);
    orch::Sample sample;
    sample.text = 7;
    for (const orch::Encoder& encoder : model.encoders) {
      if (has_raw_input(encoder)) sample.tokens.push_back({encoder.phase, {{100, std::nullopt}}});
    }
    orch::PhaseLengths lengths;
    append(lengths, model, sample);
  } catch (const orch::Error&) {
  }
  try {
    const orch::sim::Cluster cluster = orch::sim::load_cluster(path);
    (void)orch::sim::gemm_seconds(1000, 1000, 1000, orch::sim::Precision::bf16, cluster.gpu);
    (void)orch::sim::attention_rate(cluster.gpu, 128, true);
  } catch (const orch::Error&) {
  }
  std::string lines;
  try {
    orch::apps::SampleGenerator(orch::apps::load_task_profiles(path), size).append(0, 3, lines);
  } catch (const orch::Error&) {
  }
  if (ftruncate(file, 0) != 0 || pwrite(file, lines.data(), lines.size(), 0) < 0) std::abort();
  (void)orch::io::read_trace(path, [](const orch::Sample&) {});  // throws if a profile gives what is no sample
  return 0;
}
