// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddprun {

// CRC-32C (Castagnoli, RFC 3720 B.4), which finds every change of up to 32 bits in a row. Of bytes
// that follow those of which `before` is the checksum.
std::uint32_t Crc32c(const void* bytes, std::size_t size, std::uint32_t before = 0);

}  // namespace ddprun
