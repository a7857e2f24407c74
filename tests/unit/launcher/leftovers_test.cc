// SPDX-License-Identifier: Apache-2.0
// When the processes that workers left behind get which signal.
#include <gtest/gtest.h>

#include <csignal>

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

// ---- One look at them

TEST(LeftoversTest, EachStageIsToldOnceWhereSomethingIsLeft) {
  LeftoverStages stages(kEnd, seconds(60));
  EXPECT_FALSE(stages.OnLook({7}, kEnd).is_news) << "it may be about to end";
  EXPECT_EQ(stages.OnLook({7}, kEnd).next, kEnd + kNoticeDelay);
  EXPECT_FALSE(stages.OnLook({}, kEnd + kNoticeDelay).is_news) << "nothing is left";
  const auto noticed = stages.OnLook({7}, kEnd + kNoticeDelay);
  EXPECT_TRUE(noticed.is_news);
  EXPECT_EQ(noticed.signal, 0);
  EXPECT_TRUE(noticed.targets.empty());
  EXPECT_EQ(noticed.next, kEnd + seconds(60));
  EXPECT_FALSE(stages.OnLook({7}, kEnd + kNoticeDelay).is_news);
  const auto killed = stages.OnLook({7}, kEnd + seconds(60) + kLeftoverTermTimeout);
  EXPECT_TRUE(killed.is_news);
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_FALSE(stages.OnLook({7}, kEnd + std::chrono::hours(1)).is_news) << "given up";
}

TEST(LeftoversTest, EachGetsSigtermOnceAndSigkillAgainAndAgain) {
  LeftoverStages stages(kEnd, milliseconds(0));
  const auto first = stages.OnLook({7}, kEnd);
  EXPECT_TRUE(first.is_news) << "there was no grace";
  EXPECT_EQ(first.signal, SIGTERM);
  EXPECT_EQ(first.targets, std::vector<pid_t>({7}));
  EXPECT_EQ(first.next, kEnd + kSweepInterval);
  EXPECT_EQ(stages.OnLook({7, 8}, kEnd).targets, std::vector<pid_t>({8}));
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(stages.OnLook({7, 8}, kEnd + kLeftoverTermTimeout).targets,
              std::vector<pid_t>({7, 8}));
}

TEST(LeftoversTest, AfterAFailureNobodyIsTold) {
  LeftoverStages stages(kEnd, std::nullopt);
  const auto look = stages.OnLook({7}, kEnd);
  EXPECT_FALSE(look.is_news);
  EXPECT_EQ(look.signal, SIGKILL);
  EXPECT_EQ(look.targets, std::vector<pid_t>({7}));
}

}  // namespace
}  // namespace ddprun
