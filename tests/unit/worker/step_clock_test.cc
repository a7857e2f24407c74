// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/step_clock.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

const StepClock::Clock::time_point kStart{std::chrono::hours(1)};

// A step of 1 + 2 + 4 + 3 + 1 ms and 1 ms between it and the next.
void RunStep(StepClock& clock, StepClock::Clock::time_point begin) {
  clock.Enter(StepSection::kData, begin);
  clock.Enter(StepSection::kForward, begin + milliseconds(1));
  clock.Enter(StepSection::kBackward, begin + milliseconds(3));
  clock.Enter(StepSection::kGradients, begin + milliseconds(7));
  clock.Enter(StepSection::kOptimizer, begin + milliseconds(10));
  clock.EndStep(begin + milliseconds(11));
}

TEST(StepClock, SectionsAddUpToTheWholeTime) {
  StepClock clock(kStart);
  RunStep(clock, kStart + milliseconds(5));
  RunStep(clock, kStart + milliseconds(17));
  const SectionTimes& totals = clock.totals();
  EXPECT_EQ(totals.steps, 2);
  EXPECT_EQ(totals[StepSection::kData], milliseconds(2));
  EXPECT_EQ(totals[StepSection::kGradients], milliseconds(6));
  EXPECT_EQ(totals[StepSection::kOther], milliseconds(6));
  EXPECT_EQ(totals.Sum(), milliseconds(28));
  EXPECT_DOUBLE_EQ(totals.PerStep(StepSection::kForward), 0.002);
  EXPECT_DOUBLE_EQ(totals.Share(StepSection::kBackward), 8.0 / 28);
}

TEST(StepClock, DifferenceIsWhatCameSince) {
  StepClock clock(kStart);
  RunStep(clock, kStart);
  const SectionTimes before = clock.totals();
  RunStep(clock, kStart + milliseconds(12));
  const SectionTimes since = clock.totals() - before;
  EXPECT_EQ(since.steps, 1);
  EXPECT_EQ(since[StepSection::kData], milliseconds(1));
  EXPECT_EQ(SectionTimes{}.PerStep(StepSection::kData), 0);
  EXPECT_EQ(SectionTimes{}.Share(StepSection::kData), 0);
}

TEST(StepClock, SpansOfAStepFollowEachOther) {
  StepClock clock(kStart);
  RunStep(clock, kStart);
  clock.RecordSpans();
  RunStep(clock, kStart + milliseconds(12));
  const auto spans = clock.TakeSpans();
  RunStep(clock, kStart + milliseconds(24));
  ASSERT_EQ(spans.size(), 6);
  EXPECT_EQ(spans[0].section, StepSection::kOther);
  EXPECT_EQ(spans[5].section, StepSection::kOptimizer);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].step, 2);
    if (i > 0) {
      EXPECT_EQ(spans[i].start, spans[i - 1].end);
    }
  }
  EXPECT_TRUE(clock.TakeSpans().empty());
}

TEST(StepClock, TellsWhoeverListens) {
  StepClock clock(kStart);
  std::vector<StepSection> heard;
  clock.OnEnter([&](StepSection section) { heard.push_back(section); });
  RunStep(clock, kStart);
  EXPECT_EQ(heard, (std::vector<StepSection>{StepSection::kData, StepSection::kForward,
                                             StepSection::kBackward, StepSection::kGradients,
                                             StepSection::kOptimizer, StepSection::kOther}));
}

SectionTimes Times(int data, int backward) {
  SectionTimes times;
  times.steps = 10;
  times[StepSection::kData] = milliseconds(data);
  times[StepSection::kBackward] = milliseconds(backward);
  return times;
}

TEST(TimeTable, OfOneRank) {
  EXPECT_EQ(TimeTable({Times(50, 150)}),
            "where        ms a step   share\n"
            "data              5.00   25.0%\n"
            "backward         15.00   75.0%");
}

TEST(StepClock, WhatIsBeforeTheFirstStepIsTheStart) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  const StepClock::Clock::time_point begin{};
  StepClock clock(begin);
  EXPECT_EQ(clock.time_class(), TimeClass::kStart);
  clock.Enter(StepSection::kCheckpoint, begin + seconds(2));  // resuming
  clock.Enter(StepSection::kOther, begin + seconds(3));
  EXPECT_EQ(clock.time_class(), TimeClass::kStart);
  clock.Enter(StepSection::kData, begin + milliseconds(3500));
  clock.Enter(StepSection::kForward, begin + seconds(4));
  clock.Enter(StepSection::kGradients, begin + seconds(6));
  EXPECT_EQ(clock.time_class(), TimeClass::kWaiting);
  clock.Enter(StepSection::kOptimizer, begin + seconds(7));
  clock.EndStep(begin + seconds(8));
  EXPECT_EQ(clock.time_class(), TimeClass::kTraining);
  clock.Enter(StepSection::kEvaluation, begin + seconds(9));
  clock.Enter(StepSection::kOther, begin + seconds(12));
  const RankTime time = clock.rank_time();
  EXPECT_EQ(time[TimeClass::kStart], milliseconds(2500));
  EXPECT_EQ(time[TimeClass::kCheckpoint], seconds(1));
  EXPECT_EQ(time[TimeClass::kData], milliseconds(500));
  EXPECT_EQ(time[TimeClass::kWaiting], seconds(1));
  EXPECT_EQ(time[TimeClass::kEvaluation], seconds(3));
  EXPECT_EQ(time[TimeClass::kTraining], seconds(4));
  EXPECT_EQ(time.Sum(), seconds(12));
}

TEST(TimeTable, OfSeveralRanksNamesTheFastestAndTheSlowest) {
  EXPECT_EQ(TimeTable({Times(50, 150), Times(100, 140), Times(40, 160)}),
            "where        ms a step   share   fastest and slowest rank\n"
            "data              6.33   29.7%   4.00 (rank 2) to 10.00 (rank 1)\n"
            "backward         15.00   70.3%   14.00 (rank 1) to 16.00 (rank 2)");
}

}  // namespace
}  // namespace ddprun
