// Scans files of a folder or a list, each read only where its header's reader asks for bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "chunk.hpp"
#include "progress_bar.hpp"
#include "sample_builder.hpp"

namespace orch::scan {

void scan_files(const std::vector<LooseFile>& files, SampleBuilder& builder, ProgressBar& progress);

}  // namespace orch::scan
