// The library's version: semantic versioning; CMake reads it from here.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#define ORCHMLLM_VERSION_MAJOR 0
#define ORCHMLLM_VERSION_MINOR 1
#define ORCHMLLM_VERSION_PATCH 0
#define ORCHMLLM_VERSION "0.1.0"
