// SPDX-License-Identifier: Apache-2.0
// Ranks that wait for others and do not move: who is told of it, and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "rendezvous/base/limits.h"
#include "rendezvous/observe/run_status.h"
#include "rendezvous/values/collectives.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr RoundId kFirst{1};
constexpr std::chrono::seconds kUntilTold = kStallTime - kStillTime;

// A rank's place; its last collective was number 10.
std::vector<RanksInPlace> At(int rank, std::optional<std::int64_t> waits) {
  CollectivePlace place{std::nullopt, {{"0", 10, "all_reduce"}}};
  if (waits) place.waits = Collective{"0", *waits, "all_reduce"};
  std::vector<RanksInPlace> places;
  AddPlace(rank, place, places);
  return places;
}

constexpr char kWhere[] =
    "rank 0 waits in all_reduce 11; rank 1 has not begun it: its last was all_reduce 10";

// Nodes a and b of a rank each.
class StallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const JoinOptions options{.restarts = 1, .hosts_service = true};
    a = run.Joins("a", options);
    b = run.Joins("b", {.restarts = 1});
    ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  }
  void Report(LinkId link, std::vector<RanksInPlace> still, RoundId round = kFirst) {
    run.Reports(link, Heartbeat{.progress_round = round, .still = std::move(still)});
  }
  // Rank 0 waits for rank 1.
  void Stall() {
    Report(a, At(0, 11));
    Report(b, At(1, std::nullopt));
  }

  TestRun run;
  LinkId a{}, b{};
};

TEST_F(StallTest, AfterAWhileNodeZeroIsToldOnceWhoWaitsForWhom) {
  Stall();
  run.PassesUntil(run.now + kUntilTold - std::chrono::milliseconds(1));
  EXPECT_FALSE(run.Sent<Waiting>(a));
  run.PassesUntil(run.now + std::chrono::milliseconds(1));
  ASSERT_TRUE(run.Sent<Waiting>(a));
  EXPECT_THAT(run.Sent<Waiting>(a)->reason,
              HasSubstr(std::string("no progress for 60 s: ") + kWhere));
  EXPECT_FALSE(run.Sent<Waiting>(b)) << "it has a console of its own";
  ASSERT_EQ(run.notes.size(), 1u);
  EXPECT_EQ(run.notes[0].kind, NoticeKind::kRanksWait);
  EXPECT_EQ(run.state.phase, RunPhase::kSealed) << "nothing is killed";
  Stall();
  run.PassesUntil(run.now + std::chrono::hours(1));
  EXPECT_FALSE(run.Sent<Waiting>(a)) << "once for each collective";
}

TEST_F(StallTest, RanksThatGoOnInTimeAreNotTold) {
  Stall();
  run.PassesUntil(run.now + kUntilTold / 2);
  Report(a, {});
  EXPECT_TRUE(StatusOf(run.state, run.now, 8).still.empty());
  run.PassesUntil(run.now + std::chrono::hours(1));
  EXPECT_FALSE(run.Sent<Waiting>(a));
}

TEST_F(StallTest, RanksThatGoOnAtTheLastMomentAreNotTold) {
  Stall();
  run.PassesUntil(run.now + kUntilTold - kStallLook / 2);
  Report(a, {});
  run.PassesUntil(run.now + std::chrono::hours(1));
  EXPECT_FALSE(run.Sent<Waiting>(a));
  EXPECT_TRUE(run.notes.empty());
}

// In a run of thousands each look takes all members' places.
TEST_F(StallTest, ChangesOfAMomentAreLookedAtOnce) {
  const auto looks_at = run.now + kStallLook;
  Report(a, At(0, 11));
  run.now += kStallLook / 2;
  Report(b, At(1, std::nullopt));
  EXPECT_EQ(run.state.stall_look_due, looks_at);
  EXPECT_FALSE(run.state.stalled_in) << "not looked yet";
  run.PassesUntil(looks_at);
  EXPECT_TRUE(run.state.stalled_in);
  EXPECT_FALSE(run.state.stall_look_due);
  Report(b, At(1, std::nullopt));
  EXPECT_FALSE(run.state.stall_look_due) << "nothing has changed";
}

TEST_F(StallTest, AnotherCollectiveIsAnotherWait) {
  Stall();
  run.PassesUntil(run.now + kUntilTold / 2);
  Report(a, At(0, 12));
  run.PassesUntil(run.now + kUntilTold / 2);
  EXPECT_FALSE(run.Sent<Waiting>(a));
  run.PassesUntil(run.now + kUntilTold / 2);
  EXPECT_TRUE(run.Sent<Waiting>(a));
}

TEST_F(StallTest, TheStatusHasItAtOnce) {
  EXPECT_TRUE(StatusOf(run.state, run.now, 8).still.empty());
  Stall();
  EXPECT_EQ(ToSentence(StatusOf(run.state, run.now, 8).still), kWhere);
}

TEST_F(StallTest, ThatARankComputesForLongIsNoWait) {
  Report(b, At(1, std::nullopt));
  EXPECT_TRUE(StatusOf(run.state, run.now, 8).still.empty());
  run.PassesUntil(run.now + std::chrono::hours(1));
  EXPECT_FALSE(run.state.stall_due);
}

TEST_F(StallTest, TheVerdictOfAnInterruptedRunHasIt) {
  Stall();
  run.Reports(a, Leave{InterruptedBy(SIGINT), true, false});
  EXPECT_EQ(ToSentence(run.Sent<Stop>(b)->cause.places), kWhere);
  // Where the ranks are when a signal ends them says nothing.
  run.Reports(a, NodeStopped{kFirst, 1, {}, {}, At(0, std::nullopt)});
  run.Reports(b, NodeStopped{kFirst, 1, {}, {}, At(1, std::nullopt)});
  ASSERT_TRUE(run.Sent<Finish>(b));
  EXPECT_EQ(ToSentence(run.Sent<Finish>(b)->verdict.cause->places), kWhere);
}

TEST_F(StallTest, SoHasThatOfARunThatAnOperatorStops) {
  Stall();
  run.Do(RunStopped{.by = "desk"});
  EXPECT_EQ(ToSentence(run.Sent<Stop>(b)->cause.places), kWhere);
}

TEST_F(StallTest, ANewRoundBeginsAnew) {
  Stall();
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(1)});
  run.Reports(a, NodeStopped{kFirst, 1});
  run.Reports(b, NodeStopped{kFirst, 1});
  ASSERT_EQ(run.state.round, RoundId{2});
  EXPECT_TRUE(StatusOf(run.state, run.now, 8).still.empty());
  Report(a, At(0, 11), kFirst);
  EXPECT_TRUE(StatusOf(run.state, run.now, 8).still.empty()) << "of the round before";
  run.PassesUntil(run.now + std::chrono::hours(1));
  EXPECT_FALSE(run.Sent<Waiting>(a));
}

TEST_F(StallTest, ANodeReportsItsOwnRanksOnly) {
  Report(b, At(0, 11));
  EXPECT_TRUE(StatusOf(run.state, run.now, 8).still.empty());
}

}  // namespace
}  // namespace ddprun
