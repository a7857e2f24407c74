// SPDX-License-Identifier: Apache-2.0
// A running round and the nodes that join beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/restart_policy.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using std::chrono::seconds;

constexpr RoundId kFirst{1};
constexpr RoundId kSecond{2};

JoinOptions Elastic(OnJoin on_join = OnJoin::kGrow) {
  JoinOptions options{.nodes = 3, .restarts = 5, .nodes_min = 1, .lease = seconds(10)};
  options.last_call = seconds(30);
  options.policy.on_join = on_join;
  return options;
}

// Nodes a and b run round 1.
class GrowthTest : public ::testing::Test {
 protected:
  void Begin(OnJoin on_join = OnJoin::kGrow) {
    on_join_ = on_join;
    a_ = run_.Joins("a", Elastic(on_join));
    b_ = run_.Joins("b", Elastic(on_join));
    run_.TicksAt(run_.now + seconds(30));
    ASSERT_EQ(run_.state.phase, RunPhase::kSealed);
  }
  void Keep(LinkId link, bool all = true, RoundId round = kFirst) {
    run_.Reports(link, CanBeKept{round, all});
  }

  TestRun run_;
  OnJoin on_join_{};
  LinkId a_{};
  LinkId b_{};
};

TEST_F(GrowthTest, ANewcomerIsTakenInOnceItIsReady) {
  Begin();
  Keep(a_);
  const LinkId c = run_.Joins("c", Elastic());
  EXPECT_FALSE(run_.Sent<StandBy>(c)) << "not all can be kept";
  Keep(b_);
  EXPECT_TRUE(run_.Sent<StandBy>(c));
  EXPECT_EQ(run_.state.phase, RunPhase::kSealed);
  Keep(c, true, kNoRound);
  const auto stop = run_.Sent<Stop>(a_);
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->cause.kind, FailureKind::kNodeJoined);
  EXPECT_EQ(ToSentence(stop->cause), "node c has joined");
  EXPECT_FALSE(stop->last);
  run_.Reports(a_, NodeStopped{kFirst, 5000, {}});
  run_.Reports(b_, NodeStopped{kFirst, 5001, {}});
  EXPECT_EQ(run_.Sent<Start>(c)->node_count, 3) << "the join window is not waited for";
  EXPECT_EQ(run_.Sent<Start>(a_)->node_rank, 0);
  EXPECT_EQ(run_.state.restart_count, 0);
  EXPECT_FALSE(run_.state.members.at(NodeId{"id-a"}).can_be_kept) << "it is asked again";
}

TEST_F(GrowthTest, ProgramsThatCannotBeKeptAreLeftAlone) {
  Begin();
  Keep(a_);
  Keep(b_);
  Keep(b_, false);
  const LinkId c = run_.Joins("c", Elastic());
  EXPECT_FALSE(run_.Sent<StandBy>(c));
  Keep(c, true, kNoRound);
  EXPECT_EQ(run_.state.phase, RunPhase::kSealed);
}

TEST_F(GrowthTest, ASpareForAFullRunPreparesAndBreaksNothing) {
  Begin();
  const LinkId c = run_.Joins("c", Elastic());
  for (const LinkId link : {a_, b_}) Keep(link);
  Keep(c, true, kNoRound);
  for (const LinkId link : {a_, b_}) run_.Reports(link, NodeStopped{kFirst, 0, {}});
  for (const LinkId link : {a_, b_, c}) Keep(link, true, kSecond);
  const LinkId d = run_.Joins("d", Elastic());
  EXPECT_TRUE(run_.Sent<StandBy>(d));
  Keep(d, true, kNoRound);
  EXPECT_EQ(run_.state.phase, RunPhase::kSealed);
  EXPECT_EQ(run_.state.round, kSecond);
}

TEST_F(GrowthTest, AfterItsConnectionBrokeItIsToldAgain) {
  Begin();
  for (const LinkId link : {a_, b_}) Keep(link);
  const LinkId c = run_.Joins("c", Elastic());
  EXPECT_TRUE(run_.Sent<StandBy>(c));
  run_.Goes(c);
  JoinOptions back = Elastic();
  back.resume = true;
  const LinkId again = run_.Joins("c", back);
  EXPECT_TRUE(run_.Sent<StandBy>(again));
}

TEST_F(GrowthTest, StandbyPreparesButNeverGrows) {
  Begin(OnJoin::kStandby);
  for (const LinkId link : {a_, b_}) Keep(link);
  const LinkId c = run_.Joins("c", Elastic(OnJoin::kStandby));
  EXPECT_TRUE(run_.Sent<StandBy>(c));
  Keep(c, true, kNoRound);
  EXPECT_EQ(run_.state.phase, RunPhase::kSealed);
}

TEST_F(GrowthTest, RestartBreaksTheRoundAtOnceAndWaitsForMore) {
  Begin(OnJoin::kRestart);
  const LinkId c = run_.Joins("c", Elastic(OnJoin::kRestart));
  EXPECT_EQ(run_.Sent<Stop>(a_)->cause.kind, FailureKind::kNodeJoined);
  for (const LinkId link : {a_, b_}) run_.Reports(link, NodeStopped{kFirst, 0, {}});
  EXPECT_EQ(run_.Sent<Start>(c)->node_count, 3);
  EXPECT_EQ(run_.state.restart_count, 0);
}

TEST_F(GrowthTest, ARoundThatIsKeptShrinksAtOnce) {
  Begin();
  for (const LinkId link : {a_, b_}) Keep(link);
  run_.Do(NodeLost{NodeId{"id-b"}, "its machine is gone"});
  run_.Reports(a_, NodeStopped{kFirst, 0, {}});
  EXPECT_EQ(run_.Sent<Start>(a_)->node_count, 1);
  EXPECT_EQ(run_.state.restart_count, 1);
}

TEST_F(GrowthTest, AnotherRoundWaitsForTheJoinWindow) {
  Begin();
  Keep(b_);
  run_.Do(NodeLost{NodeId{"id-b"}, "its machine is gone"});
  run_.Reports(a_, NodeStopped{kFirst, 0, {}});
  EXPECT_FALSE(run_.Sent<Start>(a_));
  EXPECT_EQ(run_.state.phase, RunPhase::kForming);
}

TEST_F(GrowthTest, NodesMustAgree) {
  Begin();
  const LinkId c = run_.Joins("c", Elastic(OnJoin::kStandby));
  EXPECT_THAT(run_.RefusalOf(c), ::testing::HasSubstr("--on-join standby"));
}

}  // namespace
}  // namespace ddprun
