// SPDX-License-Identifier: Apache-2.0
// Checksums that show whether all ranks ended with the same model, and that can be compared between
// nodes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ddprun {

// CRC-32 over the tensors' values in their logical order: the same for any memory format and
// device.
std::uint32_t Checksum(const std::vector<at::Tensor>& tensors);

}  // namespace ddprun
