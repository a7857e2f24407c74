// SPDX-License-Identifier: Apache-2.0
// A node whose agent is known to be dead: taken out at once, and named as the cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/membership/membership.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr RoundId kFirst{1};
constexpr RoundId kSecond{2};
constexpr char kKilled[] = "its agent was killed by signal 9 (SIGKILL)";

class LossTest : public ::testing::Test {
 protected:
  // A round of two nodes with a lease that is not over in any of these tests.
  void Seal(int restarts) {
    options = {.nodes = 2, .restarts = restarts, .lease = std::chrono::hours(1)};
    a = run.Joins("a", options);
    b = run.Joins("b", options);
    ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  }
  void Lose(const std::string& host) { run.Do(NodeLost{NodeId{"id-" + host}, kKilled}); }

  TestRun run;
  JoinOptions options;
  LinkId a{}, b{};
};

TEST_F(LossTest, EndsTheRoundAtOnceWithItsWords) {
  Seal(0);
  run.Goes(b);
  ASSERT_EQ(run.state.phase, RunPhase::kSealed) << "only away";
  Lose("b");
  const auto stop = run.Sent<Stop>(a);
  ASSERT_TRUE(stop);
  EXPECT_EQ(ToSentence(stop->cause),
            "node b (node rank 1) was lost: its agent was killed by signal 9 (SIGKILL)");
  run.Reports(a, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Finish>(a)->verdict.exit_code, 1);
  EXPECT_EQ(run.Sent<Finish>(a)->verdict.cause, stop->cause);
}

TEST_F(LossTest, BeforeItsStreamEnds) {
  Seal(0);
  Lose("b");
  EXPECT_THAT(run.RefusalOf(b), HasSubstr("node b was removed from run 'run': its agent was"));
  EXPECT_TRUE(run.Sent<Stop>(a));
  run.Goes(b);
  EXPECT_TRUE(run.effects.empty());
}

TEST_F(LossTest, TheNextRoundWaitsForAnotherAndSaysWhy) {
  Seal(1);
  run.Goes(b);
  Lose("b");
  run.Reports(a, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Waiting>(a)->reason,
            "waiting for 1 of 2 nodes: node rank 1 has not joined (round 1 ended: node b (node "
            "rank 1) was lost: its agent was killed by signal 9 (SIGKILL))");
  const LinkId c = run.Joins("c", options);
  EXPECT_EQ(run.Sent<Start>(c)->round, kSecond);
  EXPECT_EQ(run.Sent<Start>(c)->node_rank, 1);
}

// Its workers die with it, and what their peers report of that may come first.
TEST_F(LossTest, IsTheCauseOfWhatFollowedFromIt) {
  Seal(0);
  run.Goes(b);
  run.now += std::chrono::milliseconds(3);
  run.Reports(a, WorkerFailed{kFirst, ExitedWith(7)});
  run.Reports(a, NodeStopped{kFirst, 1});
  ASSERT_EQ(run.state.phase, RunPhase::kBroken) << "the one that is away may still run workers";
  Lose("b");
  EXPECT_EQ(run.Sent<Finish>(a)->verdict.cause->message, kKilled);
}

TEST_F(LossTest, ANewerAgentOfThatNodeIsNotMeant) {
  Seal(1);
  run.Goes(b);
  options.node_rank = 1;
  const LinkId newer = run.Joins("b2", options);
  run.Reports(a, NodeStopped{kFirst, 1});
  ASSERT_EQ(run.Sent<Start>(newer)->round, kSecond);
  Lose("b");
  EXPECT_TRUE(run.effects.empty());
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

TEST_F(LossTest, ASpareAndAWaitingNodeBreakNothing) {
  Seal(0);
  run.Joins("spare", options);
  Lose("spare");
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  TestRun forming;
  forming.Joins("a", {.nodes = 3});
  forming.Joins("b", {.nodes = 3});
  forming.Do(NodeLost{NodeId{"id-b"}, kKilled});
  EXPECT_EQ(forming.state.phase, RunPhase::kForming);
  EXPECT_EQ(forming.state.members.size(), 1u);
}

// Its health check may take longer than all others to stop.
TEST_F(LossTest, OneThatLeavesBetweenTwoRoundsSaysWhyInEitherOrder) {
  for (const bool last : {false, true}) {
    TestRun shrinking;
    const JoinOptions two{.nodes = 2, .restarts = 1, .nodes_min = 1};
    const LinkId stays = shrinking.Joins("a", two);
    const LinkId leaves = shrinking.Joins("b", two);
    shrinking.Reports(stays, WorkerFailed{kFirst, ExitedWith(7)});
    Leave leave;
    leave.reason.kind = FailureKind::kNodeInterrupted;
    leave.reason.message = "GPU 3 is gone";
    if (last) shrinking.Reports(stays, NodeStopped{kFirst, 1});
    shrinking.Reports(leaves, leave);
    if (!last) shrinking.Reports(stays, NodeStopped{kFirst, 1});
    shrinking.TicksAt(*NextDeadline(shrinking.state));
    const auto start = shrinking.Sent<Start>(stays);
    ASSERT_TRUE(start) << last;
    EXPECT_THAT(start->left_out, HasSubstr("GPU 3 is gone")) << last;
  }
}

TEST_F(LossTest, AClosedRunDoesNotWaitForItToTakeTheVerdict) {
  Seal(0);
  run.Reports(a, NodeSucceeded{kFirst});
  run.Goes(a);
  run.Reports(b, NodeSucceeded{kFirst});
  run.Reports(b, Leave{});
  ASSERT_FALSE(IsDrained(run.state));
  Lose("a");
  EXPECT_TRUE(run.effects.empty());
  EXPECT_TRUE(IsDrained(run.state));
}

}  // namespace
}  // namespace ddprun
