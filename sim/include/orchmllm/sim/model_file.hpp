// Model files: a multimodal LLM's shape in TOML (docs/files.md has the format).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "orchmllm/model/architecture.hpp"

namespace orch::sim {

/// `name` is a path or the name of a shipped file. Throws InvalidInput as FILE:LINE.
[[nodiscard]] Mllm load_model(const std::string& name);

}  // namespace orch::sim
