// SPDX-License-Identifier: Apache-2.0
#include "worker/train/optimizer/schedule.h"

#include <gtest/gtest.h>

#include <vector>

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

TEST(Schedule, StepFallsByGamma) {
  const Schedule schedule{.kind = Schedule::Kind::kStep,
                          .peak_rate = 0.4,
                          .warmup_steps = 2,
                          .total_steps = 30,
                          .step_length = 10,
                          .gamma = 0.5};
  EXPECT_DOUBLE_EQ(schedule.RateAt(0), 0.2);
  EXPECT_DOUBLE_EQ(schedule.RateAt(9), 0.4);
  EXPECT_DOUBLE_EQ(schedule.RateAt(10), 0.2);
  EXPECT_DOUBLE_EQ(schedule.RateAt(29), 0.1);
}

TEST(Schedule, LinearFallsInEqualSteps) {
  const Schedule schedule{
      .kind = Schedule::Kind::kLinear, .peak_rate = 1, .warmup_steps = 2, .total_steps = 12};
  EXPECT_DOUBLE_EQ(schedule.RateAt(2), 1);
  EXPECT_DOUBLE_EQ(schedule.RateAt(7), 0.5);
  EXPECT_DOUBLE_EQ(schedule.RateAt(11), 0.1);
}

TEST(Schedule, ConstantStays) {
  const Schedule schedule{.kind = Schedule::Kind::kConstant, .peak_rate = 1, .total_steps = 5};
  EXPECT_DOUBLE_EQ(schedule.RateAt(0), 1);
  EXPECT_DOUBLE_EQ(schedule.RateAt(4), 1);
}

// torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=10), get_last_lr() before each step.
// tests/e2e/test_schedules.py compares all schedules with PyTorch itself.
TEST(Schedule, OneCycleIsPyTorchs) {
  const Schedule schedule{
      .kind = Schedule::Kind::kOneCycle, .peak_rate = 1, .rise_steps = 3, .total_steps = 10};
  const std::vector<double> expected = {0.040000000000000036,
                                        0.52,
                                        1.0,
                                        0.9504846320134737,
                                        0.8117456539497631,
                                        0.6112620219362893,
                                        0.38874197806371075,
                                        0.18825834605023697,
                                        0.049519367986526286,
                                        4e-06};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(schedule.RateAt(static_cast<std::int64_t>(i)), expected[i], 1e-12) << i;
}

// The same of total_steps=12: the rate is highest between two steps.
TEST(Schedule, OneCyclesTopMayLieBetweenTwoSteps) {
  const Schedule schedule{
      .kind = Schedule::Kind::kOneCycle, .peak_rate = 1, .rise_steps = 0.3 * 12, .total_steps = 12};
  const std::vector<double> expected = {
      0.040000000000000036, 0.3497896542195831, 0.8792851591221287,  0.9944154354509117,
      0.9330129698414117,   0.811745653949763,  0.6473789976951033,  0.46263710266697505,
      0.28306099820869923,  0.1334775301888306, 0.03456698742539522, 4e-06};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(schedule.RateAt(static_cast<std::int64_t>(i)), expected[i], 1e-12) << i;
}

}  // namespace
}  // namespace ddprun
