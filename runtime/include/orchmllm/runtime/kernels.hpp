// Kernels of the executor: ragged rows copied in one launch, payload written and checked. Lists lie on the device.
//
// copy_rows packs, unpacks, and unpacks into LLM sequence positions, whichever the list says: bytes of any type, with
// 16-byte writes between the unaligned ends of a row. check_payload sets wrong[entry] where a word differs.
// Complexity: O(bytes), spread evenly over blocks (rows.hpp).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "orchmllm/runtime/device.hpp"
#include "orchmllm/runtime/rows.hpp"

namespace orch::runtime::device {

void copy_rows(const WorkView<Row>& work, Stream& stream);
void fill_payload(const WorkView<PayloadRow>& work, Stream& stream);
void check_payload(const WorkView<PayloadRow>& work, Words words, std::uint32_t* wrong, Stream& stream);

}  // namespace orch::runtime::device
