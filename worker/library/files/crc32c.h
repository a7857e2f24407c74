// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <isa-l/crc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ddprun {

// CRC-32C (Castagnoli, RFC 3720 B.4), which finds every change of up to 32 bits in a row. Of bytes
// that follow those of which `before` is the checksum.
inline std::uint32_t Crc32c(const void* bytes, std::size_t size, std::uint32_t before = 0) {
  constexpr std::size_t kPieceMax = 1u << 30;  // ISA-L counts in int
  // ISA-L leaves both inversions to the caller, and reads only although its pointer is not const.
  auto* next = static_cast<unsigned char*>(const_cast<void*>(bytes));
  std::uint32_t state = ~before;
  while (size > 0) {
    const std::size_t piece = std::min(size, kPieceMax);
    state = crc32_iscsi(next, static_cast<int>(piece), state);
    next += piece;
    size -= piece;
  }
  return ~state;
}

}  // namespace ddprun
