// SPDX-License-Identifier: Apache-2.0
// The sum of a block of memory: as fast as the memory, where a CRC is not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddprun {

// The sum modulo 2^64 of the block's 64-bit words, the last one filled up with zeros. One flipped
// bit always changes it.
std::uint64_t WordSum(const void* data, std::size_t bytes);

}  // namespace ddprun
