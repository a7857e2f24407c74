// SPDX-License-Identifier: Apache-2.0
// Checksums that show whether all ranks have the same model, and that can be compared between
// machines: gather them (World::AllGather()) and compare.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ddprun {

// CRC-32 over the tensors' values in their logical order: the same for any memory format and
// device. Copies one tensor after another to the host; from any thread.
std::uint32_t Checksum(const std::vector<at::Tensor>& tensors);

}  // namespace ddprun
