// Everything of the library that needs only the standard library.
// SPDX-License-Identifier: Apache-2.0
#pragma once

// base: errors, checked integer costs, fingerprints, seeded streams, stable order
#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/error.hpp"
#include "orchmllm/base/hash.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/base/sort.hpp"
#include "orchmllm/version.hpp"

// model: samples, architectures, token rules, phase lengths, operations and bytes
#include "orchmllm/model/architecture.hpp"
#include "orchmllm/model/flops.hpp"
#include "orchmllm/model/phase_lengths.hpp"
#include "orchmllm/model/sample.hpp"
#include "orchmllm/model/token_rules.hpp"

// cost: packed, padded, convolution + packed, derived from a model's shape
#include "orchmllm/cost/conv_packed.hpp"
#include "orchmllm/cost/packed.hpp"
#include "orchmllm/cost/padded.hpp"
#include "orchmllm/cost/shape.hpp"

// balance: assignments with certificates, and their solvers
#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/balance/bounds.hpp"
#include "orchmllm/balance/conv_packed.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/balance/movement.hpp"
#include "orchmllm/balance/padded.hpp"

// placement: topology, traffic, node-wise placement
#include "orchmllm/placement/flow.hpp"
#include "orchmllm/placement/placement.hpp"
#include "orchmllm/placement/topology.hpp"
#include "orchmllm/placement/traffic_matrix.hpp"
#include "orchmllm/placement/transport.hpp"

// exchange: rearrangements and the all-to-all that carries them out
#include "orchmllm/exchange/exchange_plan.hpp"
#include "orchmllm/exchange/rearrangement.hpp"

// orchestrate: sampler, orchestrator, step plan
#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/orchestrate/sampler.hpp"
#include "orchmllm/orchestrate/step_plan.hpp"
