// SPDX-License-Identifier: Apache-2.0
// Nodes that come late, go away and come back: leases, the join window, spares and replacements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"
#include "rendezvous/membership/membership.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr RoundId kFirst{1};
constexpr RoundId kSecond{2};

JoinOptions Leased(JoinOptions options = {}) {
  options.lease = seconds(10);
  return options;
}

JoinOptions Back(JoinOptions options) {
  options.resume = true;
  return options;
}

// ---- The join window

TEST(JoinWindowTest, StartsWithTheLeastNumberOfNodesAndEndsTheWait) {
  TestRun run;
  const JoinOptions elastic{.nodes = 4, .nodes_min = 2};
  const LinkId a = run.Joins("a", elastic);
  EXPECT_EQ(run.Sent<Waiting>(a)->reason, "waiting for 1 of at least 2 nodes");
  const LinkId b = run.Joins("b", elastic);
  EXPECT_EQ(*run.Sent<Waiting>(b), (Waiting{"2 nodes are here, enough to start; waiting for up to "
                                            "2 more until the join window ends",
                                            milliseconds(5'000)}));
  const TimePoint window_end = run.now + seconds(5);
  run.now += seconds(3);
  const LinkId c = run.Joins("c", elastic);
  EXPECT_EQ(run.state.phase, RunPhase::kForming) << "a newcomer does not prolong it";
  run.TicksAt(window_end);
  EXPECT_EQ(run.Sent<Start>(a)->node_count, 3);
  EXPECT_EQ(run.Sent<Start>(b)->node_rank, 1);
  EXPECT_EQ(run.Sent<Start>(c)->node_rank, 2);
}

TEST(JoinWindowTest, EndsEarlyWhenEverybodyIsThere) {
  TestRun run;
  const JoinOptions elastic{.nodes = 3, .nodes_min = 1};
  for (const char* host : {"a", "b", "c"}) run.Joins(host, elastic);
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

TEST(JoinWindowTest, IsOverWhenTooFewAreLeft) {
  TestRun run;
  const JoinOptions elastic{.nodes = 4, .nodes_min = 2};
  run.Joins("a", elastic);
  const LinkId b = run.Joins("b", elastic);
  run.Goes(b);
  run.TicksAt(run.now + seconds(30));
  EXPECT_EQ(run.state.phase, RunPhase::kForming);
  run.Joins("c", elastic);
  EXPECT_EQ(NextDeadline(run.state), run.now + kWaitingInterval);
  run.TicksAt(run.now + seconds(5));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

TEST(JoinWindowTest, ASmallerRoundKeepsTheRanksThatItCan) {
  TestRun run;
  const JoinOptions elastic{.nodes = 3, .restarts = 1, .nodes_min = 2};
  const LinkId a = run.Joins("a", elastic);
  const LinkId b = run.Joins("b", elastic);
  const LinkId c = run.Joins("c", elastic);
  ASSERT_EQ(run.Sent<Start>(c)->node_rank, 2);
  run.Goes(a);
  run.Reports(b, NodeStopped{kFirst, 1});
  run.Reports(c, NodeStopped{kFirst, 1});
  run.TicksAt(run.now + seconds(5));
  EXPECT_EQ(run.Sent<Start>(b)->node_rank, 1);
  EXPECT_EQ(run.Sent<Start>(c)->node_rank, 0) << "the rank that is free";
  EXPECT_EQ(run.Sent<Start>(b)->master_addr, "addr-c");
}

// ---- Spares

TEST(SpareTest, ASurplusNodeStandsBy) {
  TestRun run;
  run.Joins("a");
  run.Joins("b");
  const LinkId c = run.Joins("c");
  EXPECT_EQ(*run.Sent<Waiting>(c),
            (Waiting{"standing by as a spare: the run has all its 2 nodes, and this one takes the "
                     "place of the first that is lost",
                     milliseconds(0)}));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed) << "a join disturbs nobody";
  EXPECT_EQ(run.state.round, kFirst);
}

TEST(SpareTest, ASpareTakesALostNodesPlaceAtOnce) {
  TestRun run;
  const JoinOptions options{.restarts = 1};
  const LinkId a = run.Joins("a", options);
  const LinkId b = run.Joins("b", options);
  const LinkId c = run.Joins("c", options);
  run.Goes(a);
  EXPECT_FALSE(run.Sent<Stop>(c)) << "it runs nothing";
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Start>(b)->node_rank, 1);
  EXPECT_EQ(run.Sent<Start>(c)->node_rank, 0);
  EXPECT_EQ(run.Sent<Start>(b)->master_addr, "addr-c");
}

TEST(SpareTest, WhatASpareDoesMeansNothingToTheRound) {
  TestRun run;
  const LinkId a = run.Joins("a");
  const LinkId b = run.Joins("b");
  const LinkId c = run.Joins("c");
  const LinkId d = run.Joins("d");
  run.Reports(c, WorkerFailed{kFirst, ExitedWith(3)});
  run.Reports(c, NodeSucceeded{kFirst});
  run.Goes(c);
  run.Reports(d, Leave{ExitedWith(1), false});
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  run.Reports(a, NodeSucceeded{kFirst});
  run.Reports(b, NodeSucceeded{kFirst});
  EXPECT_TRUE(run.state.verdict->success);
}

TEST(SpareTest, SparesHearTheVerdict) {
  TestRun run;
  const LinkId a = run.Joins("a");
  const LinkId b = run.Joins("b");
  const LinkId c = run.Joins("c");
  run.Reports(a, NodeSucceeded{kFirst});
  run.Reports(b, NodeSucceeded{kFirst});
  EXPECT_TRUE(run.Sent<Finish>(c)->verdict.success);
}

TEST(SpareTest, ARankThatASmallerRoundDoesNotHaveIsKeptForWhoAskedForIt) {
  TestRun run;
  const JoinOptions any = Leased({.nodes = 3, .restarts = 5, .nodes_min = 1});
  JoinOptions third = any;
  third.node_rank = 2;
  const LinkId a = run.Joins("a", any);
  const LinkId b = run.Joins("b", third);
  run.TicksAt(run.now + seconds(5));
  ASSERT_EQ(run.Sent<Start>(b)->node_rank, 1) << "a round of two has no rank 2";
  EXPECT_THAT(run.RefusalOf(run.Joins("c", third)),
              HasSubstr("node rank 2 is held by node b already"));
  run.Goes(b);
  const LinkId d = run.Joins("d", third);
  EXPECT_THAT(run.Sent<Stop>(a)->cause.message, HasSubstr("node d came with its --node-rank 2"));
  const LinkId e = run.Joins("e", any);
  run.Reports(a, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Start>(d)->node_rank, 2);
  EXPECT_EQ(run.Sent<Start>(e)->node_rank, 1);
}

// ---- Leases

// A node without a lease is not waited for, so it must not wait for the service either.
TEST(DurableTest, ToldToThoseWhoMayComeBack) {
  for (const milliseconds lease : {milliseconds(0), milliseconds(500)}) {
    TestRun run;
    run.state.durable = true;
    const LinkId link = run.Joins("a", {.nodes = 1, .lease = lease});
    EXPECT_EQ(run.Sent<Accepted>(link)->durable, lease.count() > 0);
  }
}

class LeaseTest : public ::testing::Test {
 protected:
  void Seal(int restarts = 1) {
    options = Leased({.restarts = restarts});
    a = run.Joins("a", options);
    b = run.Joins("b", options);
    ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  }
  void Pass(milliseconds time) { run.PassesUntil(run.now + time); }

  TestRun run;
  JoinOptions options;
  LinkId a{};
  LinkId b{};
};

TEST_F(LeaseTest, IsToldToTheNode) {
  const LinkId link = run.Joins("a", Leased());
  EXPECT_EQ(*run.Sent<Accepted>(link), (Accepted{seconds(10), milliseconds(2'500), false, true, true}));
}

TEST_F(LeaseTest, ANodeThatComesBackInTimeKeepsItsPlace) {
  Seal();
  run.Goes(a);
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  Pass(milliseconds(9'999));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  const LinkId again = run.Joins("a", Back(options));
  EXPECT_TRUE(run.Sent<Accepted>(again));
  EXPECT_EQ(run.Sent<Start>(again)->node_rank, 0) << "told again, should it not have arrived";
  run.Reports(again, NodeSucceeded{kFirst});
  run.Reports(b, NodeSucceeded{kFirst});
  EXPECT_TRUE(run.state.verdict->success);
}

TEST_F(LeaseTest, ANodeThatWasNotAnsweredAsksAgain) {
  Seal();
  const LinkId again = run.Joins("b", options);
  EXPECT_TRUE(run.Ended(b));
  EXPECT_TRUE(run.Sent<Accepted>(again));
  EXPECT_EQ(run.Sent<Start>(again)->node_rank, 1);
}

TEST_F(LeaseTest, ANodeThatComesBackTooLateIsFenced) {
  Seal();
  run.Goes(a);
  run.Reports(b, Heartbeat{});
  Pass(seconds(5));
  run.Reports(b, Heartbeat{});
  Pass(seconds(5));
  const auto stop = run.Sent<Stop>(b);
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->cause.kind, FailureKind::kNodeLost);
  EXPECT_THAT(stop->cause.message, HasSubstr("did not come back within 10 s (--lease)"));
  EXPECT_EQ(run.RefusalOf(run.Joins("a", Back(options))),
            "node a came back to run 'run' too late: its place was given up after 10 s without a "
            "message (--lease); start it again to join as a new node");
}

TEST_F(LeaseTest, ASilentNodeIsTakenOutAndTold) {
  Seal();
  Pass(seconds(6));
  run.Reports(b, Heartbeat{});
  Pass(seconds(4));
  EXPECT_THAT(run.RefusalOf(a), HasSubstr("node a sent nothing for 10 s (--lease)"));
  EXPECT_EQ(run.Sent<Stop>(b)->cause.host, "a");
  run.Reports(a, NodeSucceeded{kFirst});
  EXPECT_TRUE(run.effects.empty()) << "its old link means nothing";
}

TEST_F(LeaseTest, AServiceThatWasStoppedLosesNobodyWhoSpeaksAgain) {
  Seal();
  const TimePoint joined = run.now;
  run.TicksAt(joined + seconds(25));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed) << "15 s too late: it was not looking";
  run.Reports(a, Heartbeat{});
  run.PassesUntil(joined + seconds(30));
  EXPECT_EQ(run.state.cause->host, "b") << "which had half a lease to speak";
}

// The reports of the nodes wait in its sockets meanwhile, and the timer may be the first to run.
TEST_F(LeaseTest, AServiceThatWasStoppedForAnyTimeLosesNobody) {
  for (milliseconds stopped{500}; stopped < seconds(15); stopped += milliseconds(500)) {
    for (milliseconds begin{0}; begin < seconds(30); begin += milliseconds(400)) {
      run = TestRun();
      Seal();
      const TimePoint end = run.now + begin;
      for (; run.now + milliseconds(2'500) <= end; Pass(milliseconds(2'500))) {
        run.Reports(a, Heartbeat{});
        run.Reports(b, Heartbeat{});
      }
      run.PassesUntil(end);
      run.TicksAt(run.now + stopped);
      EXPECT_EQ(run.state.members.size(), 2u)
          << "stopped after " << begin.count() << " ms for " << stopped.count() << " ms";
    }
  }
}

TEST_F(LeaseTest, ANodeThatIsDeadIsFoundALeaseAfterTheServiceWasStopped) {
  Seal();
  run.TicksAt(run.now + seconds(8));
  run.Reports(a, Heartbeat{});
  run.Goes(b);
  Pass(seconds(8));
  run.Reports(a, Heartbeat{});
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  Pass(seconds(2));
  EXPECT_EQ(run.state.cause->host, "b") << "8 s are too short for it to have given up";
}

TEST_F(LeaseTest, AHostThatWasStoppedForTooLongIsToBlame) {
  options = Leased();
  JoinOptions hosting = options;
  hosting.hosts_service = true;
  a = run.Joins("a", hosting);
  b = run.Joins("b", options);
  run.TicksAt(run.now + seconds(28));
  run.Reports(a, Heartbeat{});
  run.Goes(b);
  Pass(seconds(8));
  run.Reports(a, Heartbeat{});
  Pass(seconds(2));
  ASSERT_TRUE(run.state.cause);
  EXPECT_EQ(ToSentence(*run.state.cause),
            "node a (node rank 0) was lost: it did not run for at least 25 s, and with it the "
            "rendezvous service, to which node b (node rank 1) has not come back; check whether "
            "that machine was suspended, or its ddprun was stopped (SIGSTOP, a debugger)");
  EXPECT_EQ(run.state.members.size(), 1u) << "it is b that is gone";
}

TEST_F(LeaseTest, AServiceOfItsOwnThatWasStoppedForTooLongIsToBlame) {
  Seal();
  run.TicksAt(run.now + seconds(28));
  run.Reports(a, Heartbeat{});
  Pass(seconds(5));
  ASSERT_TRUE(run.state.cause);
  EXPECT_EQ(ToSentence(*run.state.cause),
            "node b (node rank 1) was lost: it has not come back to the rendezvous service, which "
            "did not run for at least 25 s; check whether the service's machine was suspended, or "
            "its ddprun was stopped (SIGSTOP, a debugger)");
}

TEST_F(LeaseTest, ANodeThatIsLostLaterHasItsOwnCause) {
  Seal();
  run.TicksAt(run.now + seconds(28));
  for (int i = 0; i < 3; ++i) {
    run.Reports(a, Heartbeat{});
    run.Reports(b, Heartbeat{});
    Pass(milliseconds(2'500));
  }
  run.Reports(b, Heartbeat{});
  Pass(seconds(5));
  run.Reports(a, Heartbeat{});
  Pass(seconds(5));
  EXPECT_THAT(run.state.cause->message, HasSubstr("it sent nothing for 10 s"));
}

TEST_F(LeaseTest, NodesLostAtOnceCostOneRound) {
  options = Leased({.nodes = 1, .restarts = 3});
  a = run.Joins("a", options);
  run.Joins("spare", options);
  run.PassesUntil(run.now + seconds(10));
  EXPECT_EQ(run.state.round, kFirst);
  EXPECT_EQ(run.state.phase, RunPhase::kClosed);
}

TEST_F(LeaseTest, AnyWordIsASignOfLife) {
  Seal();
  for (int i = 0; i < 10; ++i) {
    run.now += seconds(4);
    run.Reports(a, Heartbeat{});
    run.Reports(b, NodeStopped{RoundId{9}, 1});
    run.Do(Tick{});
  }
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

TEST_F(LeaseTest, ANewStreamReplacesOneWhoseEndWasNotSeen) {
  Seal();
  const LinkId again = run.Joins("a", Back(options));
  EXPECT_TRUE(run.Ended(a));
  EXPECT_TRUE(run.Sent<Start>(again));
  run.Goes(a);
  EXPECT_TRUE(run.state.members.at(NodeId{"id-a"}).link) << "the old one's end means nothing";
}

TEST_F(LeaseTest, WhatBrokeMeanwhileIsToldOnReturn) {
  Seal();
  run.Goes(a);
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(7)});
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.state.phase, RunPhase::kBroken) << "the one that is away still runs workers";
  const LinkId again = run.Joins("a", Back(options));
  EXPECT_EQ(run.Sent<Stop>(again)->cause.exit_code, 7);
  run.Reports(again, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Start>(again)->round, kSecond);
}

TEST_F(LeaseTest, AnAftermathIsNotTheFirstCause) {
  Seal(0);
  run.Goes(a);
  run.now += seconds(1);
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(7)});
  run.Reports(b, NodeStopped{kFirst, 1});
  Pass(seconds(9));
  const auto finish = run.Sent<Finish>(b);
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->verdict.cause->kind, FailureKind::kNodeLost);
  EXPECT_EQ(finish->verdict.cause->host, "a");
}

TEST_F(LeaseTest, ANodeLostAfterTheFailureIsNotItsCause) {
  Seal(0);
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(7)});
  run.now += seconds(1);
  run.Goes(a);
  run.Reports(b, NodeStopped{kFirst, 1});
  Pass(seconds(9));
  run.Reports(b, Heartbeat{});
  Pass(seconds(1));
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.cause->exit_code, 7);
}

TEST_F(LeaseTest, TheVerdictIsKeptForThoseThatAreAway) {
  Seal(0);
  run.Reports(a, NodeSucceeded{kFirst});
  run.Goes(a);
  run.Reports(b, NodeSucceeded{kFirst});
  run.Goes(b);
  EXPECT_FALSE(IsDrained(run.state));
  const LinkId again = run.Joins("a", Back(options));
  EXPECT_TRUE(run.Sent<Finish>(again)->verdict.success);
  run.Reports(again, Leave{});
  EXPECT_TRUE(run.Ended(again));
  Pass(seconds(10));
  EXPECT_TRUE(IsDrained(run.state));
}

TEST_F(LeaseTest, AVerdictThatWasLostOnItsWayIsToldAgain) {
  Seal(0);
  run.Reports(a, NodeSucceeded{kFirst});
  run.Reports(b, NodeSucceeded{kFirst});
  EXPECT_TRUE(run.Sent<Finish>(a) && run.Sent<Finish>(b));
  run.Reports(a, Leave{});
  EXPECT_TRUE(run.Ended(a));
  run.Goes(b);
  EXPECT_FALSE(IsDrained(run.state));
  const LinkId again = run.Joins("b", Back(options));
  EXPECT_TRUE(run.Sent<Finish>(again)->verdict.success);
  run.Reports(again, Leave{});
  EXPECT_TRUE(run.Ended(again));
  EXPECT_TRUE(IsDrained(run.state));
}

TEST_F(LeaseTest, ThoseWhoNeverTakeTheVerdictAreForgotten) {
  Seal(0);
  run.Reports(a, NodeSucceeded{kFirst});
  run.Goes(a);
  run.Reports(b, NodeSucceeded{kFirst});
  run.Goes(b);
  Pass(seconds(10));
  EXPECT_TRUE(IsDrained(run.state));
}

TEST_F(LeaseTest, ARoundIsNotSealedWithoutOneThatIsAway) {
  options = Leased({.nodes = 3});
  a = run.Joins("a", options);
  run.Joins("b", options);
  run.Goes(a);
  const LinkId c = run.Joins("c", options);
  EXPECT_EQ(run.state.phase, RunPhase::kForming);
  EXPECT_EQ(run.Sent<Waiting>(c)->reason,
            "waiting for node a, whose connection ended, to come back");
  const LinkId again = run.Joins("a", Back(options));
  EXPECT_EQ(run.Sent<Start>(again)->node_rank, 0);
}

TEST_F(LeaseTest, ASpareTakesThePlaceOfOneThatDoesNotComeBackWhileForming) {
  options = Leased();
  a = run.Joins("a", options);
  run.Goes(a);
  b = run.Joins("b", options);
  const LinkId c = run.Joins("c", options);
  EXPECT_EQ(run.state.phase, RunPhase::kForming);
  Pass(seconds(5));
  run.Reports(b, Heartbeat{});
  run.Reports(c, Heartbeat{});
  Pass(seconds(5));
  EXPECT_EQ(run.Sent<Start>(b)->node_rank, 0);
  EXPECT_EQ(run.Sent<Start>(c)->node_rank, 1);
}

TEST_F(LeaseTest, ANodeWithTheRankOfOneThatIsAwayReplacesIt) {
  options = Leased({.restarts = 1, .node_rank = 0});
  a = run.Joins("a", options);
  options.node_rank = 1;
  b = run.Joins("b", options);
  run.Goes(a);
  options.node_rank = 0;
  const LinkId a2 = run.Joins("a2", options);
  EXPECT_EQ(run.Sent<Stop>(b)->cause.host, "a");
  EXPECT_THAT(run.RefusalOf(run.Joins("a", Back(options))), HasSubstr("too late"));
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Start>(a2)->node_rank, 0);
  EXPECT_EQ(run.Sent<Start>(b)->node_rank, 1);
}

TEST_F(LeaseTest, AReplacementHasThePlaceBeforeASpare) {
  options = Leased({.restarts = 1, .node_rank = 0});
  a = run.Joins("a", options);
  options.node_rank.reset();
  b = run.Joins("b", options);
  run.Joins("spare", options);
  run.Goes(a);
  options.node_rank = 0;
  const LinkId a2 = run.Joins("a2", options);
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Start>(a2)->node_rank, 0);
  EXPECT_EQ(run.Sent<Start>(b)->node_rank, 1);
}

TEST_F(LeaseTest, ARankThatWasAskedForIsTakenFromOneThatWasGivenIt) {
  options = Leased({.restarts = 1});
  a = run.Joins("a", options);
  run.Goes(a);
  b = run.Joins("b", options);
  options.node_rank = 1;
  const LinkId spare = run.Joins("spare", options);
  options.node_rank.reset();
  a = run.Joins("a", Back(options));
  EXPECT_EQ(run.Sent<Start>(b)->node_rank, 1);
  run.Reports(a, Leave{});
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Start>(spare)->node_rank, 1);
  EXPECT_EQ(run.Sent<Start>(b)->node_rank, 0);
}

TEST_F(LeaseTest, ANodeThatWasGivenAnotherRankIsReplacedByTheOneThatItAskedFor) {
  options = Leased({.nodes = 4, .restarts = 1, .node_rank = 3, .nodes_min = 1});
  options.last_call = milliseconds(0);
  a = run.Joins("a", options);
  EXPECT_EQ(run.Sent<Start>(a)->node_rank, 0);
  EXPECT_THAT(run.RefusalOf(run.Joins("b", options)), HasSubstr("node rank 3 is held by node a"));
  run.Goes(a);
  const LinkId a2 = run.Joins("a2", options);
  EXPECT_EQ(run.Sent<Start>(a2)->round, kSecond);
  EXPECT_EQ(run.state.members.size(), 1u);
}

TEST_F(LeaseTest, TheOnlyNodeOfAFormingRunCanBeReplaced) {
  options = Leased({.node_rank = 0});
  a = run.Joins("a", options);
  run.Goes(a);
  const LinkId a2 = run.Joins("a2", options);
  EXPECT_TRUE(run.Sent<Accepted>(a2));
  EXPECT_EQ(run.state.members.size(), 1u);
}

TEST_F(LeaseTest, EverybodyStartingAnewAtOnceFormsTheNextRound) {
  options = Leased({.restarts = 1});
  for (int rank = 0; rank < 2; ++rank) {
    options.node_rank = rank;
    (rank == 0 ? a : b) = run.Joins(rank == 0 ? "a" : "b", options);
  }
  run.Goes(a);
  run.Goes(b);
  options.node_rank = 1;
  const LinkId b2 = run.Joins("b2", options);
  options.node_rank = 0;
  const LinkId a2 = run.Joins("a2", options);
  EXPECT_EQ(run.Sent<Start>(a2)->round, kSecond);
  EXPECT_EQ(run.Sent<Start>(b2)->node_rank, 1);
}

TEST_F(LeaseTest, AServiceThatKnowsNothingOfTheRunSaysSo) {
  EXPECT_THAT(run.RefusalOf(run.Joins("a", Back(Leased()))),
              HasSubstr("it was restarted without a journal"));
}

}  // namespace
}  // namespace ddprun
