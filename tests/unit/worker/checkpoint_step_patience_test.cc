// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/stop_signal.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

using Seconds = StepPatience::Seconds;

TEST(StepPatienceTest, IsThreeTimesTheLongestOfTheLatestSteps) {
  StepPatience patience;
  EXPECT_EQ(patience.Get(), Seconds(2));
  patience.Add(Seconds(1));
  EXPECT_EQ(patience.Get(), Seconds(5));
  // On a GPU only every 16th step waits for what is queued, the others take no time.
  for (int step = 0; step < 31; ++step) patience.Add(Seconds(0));
  EXPECT_EQ(patience.Get(), Seconds(5));
}

TEST(StepPatienceTest, ForgetsALongOne) {
  StepPatience patience;
  patience.Add(Seconds(100));
  for (int step = 0; step < 64; ++step) patience.Add(Seconds(1));
  EXPECT_EQ(patience.Get(), Seconds(5));
}

// The host only queues a GPU's first steps.
TEST(StepPatienceTest, IsTheLongestUntilStepsSaySomething) {
  StepPatience patience(2);
  EXPECT_EQ(patience.Get(), Seconds(StopSignal::kPatienceMax));
  patience.Add(Seconds(0.001));
  EXPECT_EQ(patience.Get(), Seconds(StopSignal::kPatienceMax));
  patience.Add(Seconds(1));
  EXPECT_EQ(patience.Get(), Seconds(3 + 2));
}

}  // namespace
}  // namespace ddprun
