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
#include "orchmllm/model/encoder_graph.hpp"
#include "orchmllm/model/flops.hpp"
#include "orchmllm/model/phase_lengths.hpp"
#include "orchmllm/model/sample.hpp"
#include "orchmllm/model/sample_units.hpp"
#include "orchmllm/model/token_rules.hpp"

// cost: packed, padded, convolution + packed, derived from a model's shape
#include "orchmllm/cost/conv_packed.hpp"
#include "orchmllm/cost/packed.hpp"
#include "orchmllm/cost/padded.hpp"
#include "orchmllm/cost/shape.hpp"

// balance: assignments with certificates, and their solvers; balance() chooses
#include "orchmllm/balance/assignment.hpp"
#include "orchmllm/balance/balance.hpp"
#include "orchmllm/balance/bins_bound.hpp"
#include "orchmllm/balance/bounds.hpp"
#include "orchmllm/balance/certificate.hpp"
#include "orchmllm/balance/constrained.hpp"
#include "orchmllm/balance/constraints.hpp"
#include "orchmllm/balance/conv_packed.hpp"
#include "orchmllm/balance/exact.hpp"
#include "orchmllm/balance/greedy.hpp"
#include "orchmllm/balance/greedy_onto.hpp"
#include "orchmllm/balance/karmarkar_karp.hpp"
#include "orchmllm/balance/microbatch.hpp"
#include "orchmllm/balance/movement.hpp"
#include "orchmllm/balance/padded.hpp"
#include "orchmllm/balance/quadratic.hpp"
#include "orchmllm/balance/refine.hpp"
#include "orchmllm/balance/split.hpp"

// placement: topology, traffic, node-wise placement
#include "orchmllm/placement/bottleneck_bound.hpp"
#include "orchmllm/placement/bottleneck_search.hpp"
#include "orchmllm/placement/flow.hpp"
#include "orchmllm/placement/node_volumes.hpp"
#include "orchmllm/placement/placement.hpp"
#include "orchmllm/placement/topology.hpp"
#include "orchmllm/placement/traffic_matrix.hpp"
#include "orchmllm/placement/transport.hpp"

// exchange: rearrangements and the all-to-all that carries them out
#include "orchmllm/exchange/exchange_plan.hpp"
#include "orchmllm/exchange/hierarchical.hpp"
#include "orchmllm/exchange/link_traffic.hpp"
#include "orchmllm/exchange/rearrangement.hpp"

// orchestrate: sampler, orchestrator, step plan, prefetching
#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/orchestrate/phase_problem.hpp"
#include "orchmllm/orchestrate/prefetch.hpp"
#include "orchmllm/orchestrate/rank_view.hpp"
#include "orchmllm/orchestrate/sampler.hpp"
#include "orchmllm/orchestrate/step_plan.hpp"
