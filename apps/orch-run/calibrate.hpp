// orch-run calibrate: measures links, memory and compute of the ranks that it is started on, and writes a cluster file.
//
// What is measured is what runs execute: exchanges through the transport, copies of rows, the load of phases. All
// coefficients are those of the simulator's own equations (docs/simulator.md), found by non-negative least squares on
// relative errors. Times are those of the slowest rank. Units: seconds, bytes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "backend.hpp"
#include "options.hpp"

namespace orch::apps {

/// All ranks take part; rank 0 writes the file and prints tables. Throws AgreedError, TransportError.
void calibrate(Backend& backend, const CalibrateOptions& options);

}  // namespace orch::apps
