// SPDX-License-Identifier: Apache-2.0
#include "worker/train/profile/clock_alignment.h"

#include <algorithm>
#include <limits>

namespace ddprun {

ClockOffset OffsetToRankZero(const std::vector<BarrierTimes>& zero,
                             const std::vector<BarrierTimes>& rank) {
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < zero.size(); ++i) {
    // In rank 0's time: rank.entered + offset <= zero.left, and zero.entered <= rank.left + offset.
    most = std::min(most, zero[i].left - rank[i].entered);
    least = std::max(least, zero[i].entered - rank[i].left);
  }
  return {least + (most - least) / 2, (most - least + 1) / 2};
}

}  // namespace ddprun
