// orch trace validate: checks every line of a trace.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "commands.hpp"
#include "common.hpp"
#include "orchmllm/sim/model_file.hpp"
#include "printable.hpp"

namespace orch::apps {

void add_trace_validate_command(CLI::App& trace) {
  struct Options {
    std::string file, model;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = trace.add_subcommand("validate", "Check every line of a trace; exit code 2 at the first bad one");
  command->add_option("FILE", options->file, "Trace file")->required();
  command->add_option("--model", options->model, "Check that this model can encode every sample");
  command->footer(
      "Examples:\n"
      "  orch trace validate traces/omni-demo.jsonl.gz\n"
      "  orch trace validate my.jsonl.zst --model mllm-84b");
  command->callback([options] {
    std::optional<Mllm> model;
    if (!options->model.empty()) model = sim::load_model(options->model);
    const io::TraceInfo info = io::read_trace(options->file, [&](const Sample& sample) {
      PhaseLengths one;
      if (model) append(one, *model, sample);
    });
    warn_about(info, options->file);
    fmt::print("{}: valid, {} samples, hash {}\n", printable(options->file), info.samples, hex(info.hash));
  });
}

}  // namespace orch::apps
