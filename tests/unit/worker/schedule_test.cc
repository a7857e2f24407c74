// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(Schedule, RisesInStepsToThePeak) {
  const Schedule schedule{.peak_rate = 0.1, .warmup_steps = 4, .total_steps = 12};
  EXPECT_DOUBLE_EQ(schedule.RateAt(0), 0.025);
  EXPECT_DOUBLE_EQ(schedule.RateAt(1), 0.05);
  EXPECT_DOUBLE_EQ(schedule.RateAt(3), 0.1);
  EXPECT_DOUBLE_EQ(schedule.RateAt(4), 0.1);
}

TEST(Schedule, FallsAsACosine) {
  const Schedule schedule{.peak_rate = 0.1, .warmup_steps = 4, .total_steps = 12};
  EXPECT_NEAR(schedule.RateAt(8), 0.05, 1e-12);  // half way
  EXPECT_NEAR(schedule.RateAt(6), 0.085355339059327,
              1e-12);  // a quarter: 0.1 * (1 + sqrt(0.5)) / 2
  EXPECT_NEAR(schedule.RateAt(11), 0.0038060233744357, 1e-12);  // the last step still learns
  EXPECT_NEAR(schedule.RateAt(100), 0, 1e-12);
}

TEST(Schedule, WithoutWarmUpStartsAtThePeak) {
  const Schedule schedule{.peak_rate = 0.1, .warmup_steps = 0, .total_steps = 10};
  EXPECT_DOUBLE_EQ(schedule.RateAt(0), 0.1);
}

TEST(Schedule, MayBeAllWarmUpOrEmpty) {
  const Schedule warmup{.peak_rate = 0.1, .warmup_steps = 5, .total_steps = 5};
  EXPECT_DOUBLE_EQ(warmup.RateAt(4), 0.1);
  const Schedule empty{.peak_rate = 0.1, .warmup_steps = 0, .total_steps = 0};
  EXPECT_DOUBLE_EQ(empty.RateAt(0), 0.1);
}

}  // namespace
}  // namespace ddprun
