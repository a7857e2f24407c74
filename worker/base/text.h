// SPDX-License-Identifier: Apache-2.0
// Numbers as text for people.
#pragma once

#include <cstdio>
#include <string>

namespace ddprun {

inline std::string Fixed(double value, int digits) {
  char text[400];  // the longest double has 309 digits before the point
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// 0.9123 is "91.23 %".
inline std::string Percent(double share) { return Fixed(100 * share, 2) + " %"; }

}  // namespace ddprun
