#include "trace_files.hpp"

#include <nlohmann/json.hpp>

#include "trace_progress.hpp"

namespace orch::apps {

TraceSummary summarise(const std::string& path, std::uint64_t most) {
  TraceSummary summary;
  io::TraceReader trace(path);
  SampleProgress progress("checking " + path);
  std::uint64_t samples = 0;
  while (samples < most && trace.next()) {
    ++samples;
    summary.bytes += trace.line().size() + 1;
    progress.step();
  }
  summary.info = trace.info();
  summary.metadata = trace.metadata();
  return summary;
}

std::string derived_metadata(const TraceSummary& summary, const std::string& how, std::uint64_t samples) {
  nlohmann::ordered_json metadata{{"orchmllm_trace", 1}, {"name", summary.info.name}};
  if (!summary.metadata.empty()) metadata = nlohmann::ordered_json::parse(summary.metadata);
  metadata["source"] = summary.info.source.empty() ? how : summary.info.source + "; " + how;
  metadata["samples"] = samples;
  return metadata.dump() + "\n";
}

}  // namespace orch::apps
