// SPDX-License-Identifier: Apache-2.0
// When the processes that workers left behind get which signal.
#include <gtest/gtest.h>

#include "launcher/base/limits.h"
#include "launcher/processes/orphans.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Stage = LeftoverStages::Stage;

constexpr TimePoint kEnd{std::chrono::hours(1)};  // of the last worker

TEST(LeftoversTest, AfterSuccessTheyHaveTimeThenSigtermThenSigkill) {
  const LeftoverStages stages(kEnd, seconds(60));
  EXPECT_EQ(stages.At(kEnd), Stage::kGrace);
  EXPECT_EQ(stages.At(kEnd + kNoticeDelay), Stage::kNoticed);
  EXPECT_EQ(stages.EndOf(Stage::kNoticed), kEnd + seconds(60));
  EXPECT_EQ(stages.At(kEnd + seconds(60)), Stage::kTerm);
  EXPECT_EQ(stages.At(kEnd + seconds(60) + kLeftoverTermTimeout), Stage::kKill);
  EXPECT_EQ(stages.At(kEnd + seconds(60) + kLeftoverTermTimeout + kSweepTimeout), Stage::kGivenUp);
}

TEST(LeftoversTest, AfterAFailureTheyAreKilledAtOnce) {
  const LeftoverStages stages(kEnd, std::nullopt);
  EXPECT_EQ(stages.At(kEnd), Stage::kKill);
  EXPECT_EQ(stages.At(kEnd + kSweepTimeout), Stage::kGivenUp);
}

TEST(LeftoversTest, NoTimeIsSigtermAtOnce) {
  const LeftoverStages stages(kEnd, milliseconds(0));
  EXPECT_EQ(stages.At(kEnd), Stage::kTerm);
  EXPECT_EQ(stages.At(kEnd + kLeftoverTermTimeout), Stage::kKill);
}

TEST(LeftoversTest, AShortTimeHasNoNotice) {
  const LeftoverStages stages(kEnd, kNoticeDelay / 2);
  EXPECT_EQ(stages.At(kEnd + kNoticeDelay / 2), Stage::kTerm);
}

TEST(LeftoversTest, ASignalToTheRunReachesThemToo) {
  LeftoverStages stages(kEnd, seconds(3600));
  const TimePoint now = kEnd + seconds(2);
  stages.Terminate(now);
  EXPECT_EQ(stages.At(now), Stage::kTerm);
  stages.Terminate(now + seconds(1));  // moves nothing
  EXPECT_EQ(stages.At(now + kLeftoverTermTimeout), Stage::kKill);
  EXPECT_EQ(stages.At(now + kLeftoverTermTimeout + kSweepTimeout), Stage::kGivenUp);
}

TEST(LeftoversTest, ASecondSignalKillsThem) {
  LeftoverStages stages(kEnd, seconds(3600));
  stages.Kill(kEnd + seconds(1));
  EXPECT_EQ(stages.At(kEnd + seconds(1)), Stage::kKill);
  EXPECT_EQ(stages.At(kEnd + seconds(1) + kSweepTimeout), Stage::kGivenUp);
}

}  // namespace
}  // namespace ddprun
