// SPDX-License-Identifier: Apache-2.0
#include "worker/files/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace ddprun {

std::uint32_t Crc32c(const void* bytes, std::size_t size, std::uint32_t before) {
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
