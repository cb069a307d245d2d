// orch trace scan: records a trace from the headers of media files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace orch::apps {

/// Where the program was built without a library that scanning needs, the command says which package is missing.
void add_scan_command(CLI::App& trace);

}  // namespace orch::apps
