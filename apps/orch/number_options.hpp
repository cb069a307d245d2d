// Numbers on the command line: decimal digits, nothing else.
//
// CLI11 alone wraps negative integers to large ones, reads 010 as octal and 0x10 as hexadecimal, takes an empty text
// for zero and lets nan through every range. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace orch::apps {

/// Makes the options for unsigned integers and for floating-point numbers of `app` and of all its subcommands refuse
/// anything that is not such a number, before any other check. To be called when all options are there.
void require_decimal_numbers(CLI::App& app);

}  // namespace orch::apps
