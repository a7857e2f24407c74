// SPDX-License-Identifier: Apache-2.0
// The clock of leases and deadlines. No decision compares it with another host's.
#pragma once

#include <chrono>

namespace ddprun {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

}  // namespace ddprun
