// orch trace generate: synthetic traces from profiles.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "commands.hpp"
#include "common.hpp"
#include "sample_generator.hpp"
#include "toml_reader.hpp"
#include "trace_generator.hpp"

namespace orch::apps {

void add_trace_generate_command(CLI::App& trace) {
  struct Options {
    std::string profile, out;
    std::uint64_t samples = 100000, seed = 1;
    unsigned threads = 0;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = trace.add_subcommand("generate", "Write a synthetic trace drawn from a profile");
  command->add_option("--profile", options->profile, "Profile (docs/traces.md), or the name of a shipped one")
      ->required();
  command->add_option("--samples", options->samples, "Samples")
      ->check(CLI::Range(1ULL, 1ULL << 32U))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed")->capture_default_str();
  command->add_option("--threads", options->threads, "Threads that draw; 0 = all cores. The trace is the same")
      ->check(CLI::Range(0U, 256U))
      ->capture_default_str();
  command->add_option("OUT", options->out, "Trace file to write; .gz and .zst compress")->required();
  command->footer(
      "Examples:\n"
      "  orch trace generate --profile traces/profiles/omni-demo.toml --samples 200000 --seed 1 omni-demo.jsonl.gz\n"
      "  orch trace generate --profile omni --samples 10000000 --seed 7 large.jsonl");
  command->callback([options] {
    const std::string path = sim::find_file("profiles", options->profile);
    require_distinct({path}, {options->out});
    if (profile_format(path) == 1) {
      generate_trace(load_profile(path), options->samples, options->seed, options->out);
    } else {
      const SampleGenerator generator(load_task_profiles(path), options->seed);
      generate_samples(generator, options->samples, options->threads, options->out);
    }
  });
}

}  // namespace orch::apps
