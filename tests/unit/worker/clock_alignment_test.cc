// SPDX-License-Identifier: Apache-2.0
#include "worker/train/profile/clock_alignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

namespace ddprun {
namespace {

TEST(ClockAlignment, OneBarrierBoundsTheOffset) {
  // Rank 1's clock is 1000 behind; it came late, so that rank 0 waited for it.
  const ClockOffset offset =
      OffsetToRankZero({{.entered = 5000, .left = 5300}}, {{.entered = 4200, .left = 4310}});
  EXPECT_EQ(offset.nanoseconds, 690 + (1100 - 690) / 2);
  EXPECT_EQ(offset.uncertainty, 205);
}

TEST(ClockAlignment, TheTrueOffsetIsWithinTheUncertainty) {
  std::mt19937_64 random(7);
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
  };
  for (int trial = 0; trial < 1000; ++trial) {
    const std::int64_t truth = up_to(2'000'000'000) - 1'000'000'000;
    std::vector<BarrierTimes> zero;
    std::vector<BarrierTimes> rank;
    for (int i = 0; i < 8; ++i) {
      const std::int64_t now = 1'000'000'000 + i * 1'000'000;
      const std::int64_t in_zero = now + up_to(50'000);
      const std::int64_t in_rank = now + up_to(50'000);
      const std::int64_t all_in = std::max(in_zero, in_rank);
      zero.push_back({in_zero, all_in + up_to(80'000)});
      rank.push_back({in_rank - truth, all_in + up_to(80'000) - truth});
    }
    const ClockOffset offset = OffsetToRankZero(zero, rank);
    EXPECT_LE(std::abs(offset.nanoseconds - truth), offset.uncertainty);
    EXPECT_LE(offset.uncertainty, 130'000);
  }
}

}  // namespace
}  // namespace ddprun
