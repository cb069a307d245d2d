// Scans a WebDataset shard: .tar, .tar.gz, .tar.zst, read once from front to back by libarchive.
//
// Of a member its first 1 MiB are kept, and only as far as its header's reader asks for them; where it asks for more
// (video whose index stands at the end, TIFF, OGG), the member is read through and its last 16 MiB are kept too. In a
// plain .tar the rest of a member is skipped by seeking. Memory: 33 MiB a thread at most. A compressed shard that
// unpacks to more than 256 times its size (and 64 MiB) is given up as a bomb.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "progress_bar.hpp"
#include "sample_builder.hpp"

namespace orch::scan {

void scan_shard(const std::string& path, SampleBuilder& builder, ProgressBar& progress);

}  // namespace orch::scan
