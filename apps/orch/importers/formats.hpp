// The formats that `orch trace convert` reads. A new one: a file of its own, a line here, a line in importer.cpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "importer.hpp"

namespace orch::apps {

extern const Importer azure;
extern const Importer csv;
extern const Importer energon;
extern const Importer internvl;
extern const Importer kaldi;
extern const Importer lhotse;
extern const Importer llama_factory;
extern const Importer llava;
extern const Importer mooncake;
extern const Importer ms_swift;
extern const Importer nemo;
extern const Importer omnibal;
extern const Importer qwen_vl;
extern const Importer servegen;

}  // namespace orch::apps
