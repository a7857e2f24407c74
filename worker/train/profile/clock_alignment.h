// SPDX-License-Identifier: Apache-2.0
// Estimates the offset of a rank's clock from rank 0's, from the times at which each entered and
// left some barriers.
#pragma once

#include <cstdint>
#include <vector>

namespace ddprun {

// One rank's view of one barrier, in nanoseconds of its own clock.
struct BarrierTimes {
  std::int64_t entered = 0;
  std::int64_t left = 0;
};

struct ClockOffset {
  std::int64_t nanoseconds = 0;  // to be added to the rank's times to have them in rank 0's
  std::int64_t uncertainty = 0;  // the true offset is at most so far away
};

// Nobody leaves a barrier before all have entered it. So each barrier bounds the offset from both
// sides, and the narrowest bounds of all barriers hold (as in Marzullo's intersection, which NTP
// uses). `zero` and `rank` are of the same barriers, at least one.
ClockOffset OffsetToRankZero(const std::vector<BarrierTimes>& zero,
                             const std::vector<BarrierTimes>& rank);

}  // namespace ddprun
