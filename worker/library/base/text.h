// SPDX-License-Identifier: Apache-2.0
// Numbers as text.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace ddprun {

inline std::string Fixed(double value, int digits) {
  char text[400];  // the longest double has 309 digits before the point
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// Lower case, with leading zeros up to `digits`.
inline std::string Hex(std::uint64_t value, int digits = 8) {
  char text[32];
  std::snprintf(text, sizeof text, "%0*llx", digits, static_cast<unsigned long long>(value));
  return text;
}

// 0.9123 is "91.23 %".
inline std::string Percent(double share) { return Fixed(100 * share, 2) + " %"; }

}  // namespace ddprun
