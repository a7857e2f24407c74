// SPDX-License-Identifier: Apache-2.0
// The clock of leases and deadlines. No decision compares it with another host's.
#pragma once

#include <chrono>
#include <initializer_list>
#include <optional>

namespace ddprun {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

// The earliest of these deadlines; absent if there is none.
inline std::optional<TimePoint> Earliest(
    std::initializer_list<std::optional<TimePoint>> deadlines) {
  std::optional<TimePoint> earliest;
  for (const std::optional<TimePoint>& deadline : deadlines) {
    if (deadline.has_value() && (!earliest.has_value() || *deadline < *earliest))
      earliest = deadline;
  }
  return earliest;
}

}  // namespace ddprun
