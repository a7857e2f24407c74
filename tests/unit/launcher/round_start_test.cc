// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/round_start.h"

#include <gmock/gmock.h>

#include "tests/testing/eventually.h"
#include "tests/unit/launcher/workers_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class RoundStartTest : public WorkersFixture {
 protected:
  void SetUp() override {
    WorkersFixture::SetUp();
    start_ = std::make_unique<RoundStart>(config_, *table_, *requests_, cgroup_, *console_,
                                          background_, nullptr);
  }
  // From an earlier round: it has its pipes.
  void Keep(int local_rank) {
    LogMux::WriteEnds ends;
    ASSERT_TRUE(table_->logs().StartParked(local_rank, "", ends).ok());
    (*table_)[local_rank].carried = true;
  }
  // The local ranks that were started, with how they ended.
  std::vector<std::pair<int, Outcome>> Run() {
    std::vector<std::pair<int, Outcome>> ended;
    EXPECT_TRUE(Eventually([&] {
      auto started = start_->OnTurn(now_);
      EXPECT_TRUE(started.ok()) << started.status();
      if (!started.ok() || !started->has_value()) return !started.ok();
      for (const RoundStart::Started& one : **started)
        ended.emplace_back(one.local_rank, one.process.outcome.value_or(Exited{0}));
      return true;
    }));
    return ended;
  }

  std::unique_ptr<RoundStart> start_;
};

TEST_F(RoundStartTest, EachRankIsStartedOnceItsLogsAreOpen) {
  ASSERT_TRUE(start_->Begin(now_).ok());
  EXPECT_TRUE(start_->is_underway());
  EXPECT_TRUE(start_->NextDeadline().has_value());
  const auto ended = Run();
  ASSERT_EQ(ended.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ended[static_cast<std::size_t>(i)].first, i);
    EXPECT_EQ(ExitCodeOf(ended[static_cast<std::size_t>(i)].second), 127) << "it does not exist";
  }
  EXPECT_FALSE(start_->is_underway());
  EXPECT_EQ(start_->NextDeadline(), std::nullopt);
  EXPECT_THAT((*table_)[1].error_file, HasSubstr("error_1_5.json"));
}

TEST_F(RoundStartTest, OneThatIsKeptIsToldOfTheRoundAndNotStarted) {
  Keep(0);
  ASSERT_TRUE(start_->Begin(now_).ok());
  const auto ended = Run();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].first, 1);
  EXPECT_THAT(Printed(), HasSubstr("rank 4 is killed because it does not read its socket"));
}

TEST_F(RoundStartTest, WhereAllAreKeptNothingIsWaitedFor) {
  for (int i = 0; i < 2; ++i) Keep(i);
  ASSERT_TRUE(start_->Begin(now_).ok());
  EXPECT_TRUE(Run().empty());
  EXPECT_FALSE(start_->is_underway());
}

TEST_F(RoundStartTest, AStartThatIsGivenUpReturnsNothing) {
  ASSERT_TRUE(start_->Begin(now_).ok());
  start_->GiveUp();
  EXPECT_FALSE(start_->is_underway());
  EXPECT_EQ(start_->NextDeadline(), std::nullopt);
  const auto started = start_->OnTurn(now_);
  ASSERT_TRUE(started.ok());
  EXPECT_FALSE(started->has_value());
}

}  // namespace
}  // namespace ddprun
