// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/finite_values.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ddprun {
namespace {

// Looked at together, so that the compiler can use vectors; fits into the first cache.
constexpr std::size_t kPieceBytes = 16 << 10;

// A number is finite if not all bits of its exponent are set.
template <typename Bits>
bool AllFinite(const char* values, std::size_t bytes, Bits exponent) {
  Bits piece[kPieceBytes / sizeof(Bits)];
  for (std::size_t done = 0; done < bytes; done += kPieceBytes) {
    const std::size_t size = std::min(kPieceBytes, bytes - done);
    std::memcpy(piece, values + done, size);
    Bits not_finite = 0;
    for (std::size_t i = 0; i < size / sizeof(Bits); ++i)
      not_finite |= static_cast<Bits>((piece[i] & exponent) == exponent);
    if (not_finite != 0) return false;
  }
  return true;
}

}  // namespace

bool AllFinite(const char* values, std::size_t bytes, c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Double:
      return AllFinite<std::uint64_t>(values, bytes, 0x7ff0'0000'0000'0000);
    case c10::ScalarType::Float:
      return AllFinite<std::uint32_t>(values, bytes, 0x7f80'0000);
    case c10::ScalarType::Half:
      return AllFinite<std::uint16_t>(values, bytes, 0x7c00);
    case c10::ScalarType::BFloat16:
      return AllFinite<std::uint16_t>(values, bytes, 0x7f80);
    default:
      return true;
  }
}

}  // namespace ddprun
