// SPDX-License-Identifier: Apache-2.0
// Each transition of the membership, in the order of the diagram in rendezvous/membership/RULES.md.
#include "rendezvous/membership/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr RoundId kFirst{1};
constexpr RoundId kSecond{2};

// ---- Forming

TEST(FormingTest, ANodeAloneIsToldWhatItWaitsFor) {
  TestRun run;
  const LinkId a = run.Joins("a", {.node_rank = 0});
  EXPECT_EQ(*run.Sent<Waiting>(a), (Waiting{"waiting for 1 of 2 nodes: node rank 1 has not joined",
                                            milliseconds(60'000)}));
  EXPECT_EQ(NextDeadline(run.state), run.now + seconds(60));
}

TEST(FormingTest, ACompleteRoundIsSealedAtOnce) {
  TestRun run;
  const LinkId a = run.Joins("a", {.local_world_size = 2});
  const LinkId b = run.Joins("b", {.local_world_size = 3});
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  const Start expected{.round = kFirst,
                       .run_id = "run",
                       .node_rank = 0,
                       .node_count = 2,
                       .rank_first = 0,
                       .world_size = 5,
                       .master_addr = "addr-a",
                       .master_port = 4000,
                       .role_world_size = 5};
  EXPECT_EQ(*run.Sent<Start>(a), expected);
  Start for_b = expected;
  for_b.node_rank = 1;
  for_b.rank_first = for_b.role_rank_first = 2;
  EXPECT_EQ(*run.Sent<Start>(b), for_b);
  EXPECT_EQ(NextDeadline(run.state), std::nullopt);
}

TEST(FormingTest, TheTraceOfARunIsThatOfTheNodeWithTheServiceOrOfNodeZero) {
  for (const bool hosts_service : {false, true}) {
    TestRun run;
    const LinkId a =
        run.Joins("a", {.node_rank = 1, .hosts_service = hosts_service, .traceparent = "of a"});
    const LinkId b = run.Joins("b", {.node_rank = 0, .traceparent = "of b"});
    for (const LinkId link : {a, b}) {
      const auto start = run.Sent<Start>(link);
      ASSERT_TRUE(start.has_value());
      EXPECT_EQ(start->traceparent, hosts_service ? "of a" : "of b");
    }
  }
}

TEST(FormingTest, WorkersAreAlsoCountedByTheirRole) {
  TestRun run;
  const LinkId a = run.Joins("a", {.nodes = 3, .local_world_size = 2, .role = "actor"});
  const LinkId b = run.Joins("b", {.nodes = 3, .local_world_size = 3, .role = "learner"});
  const LinkId c = run.Joins("c", {.nodes = 3, .local_world_size = 4, .role = "actor"});
  const auto first_and_size = [&](LinkId link) {
    const Start start = *run.Sent<Start>(link);
    return std::pair(start.role_rank_first, start.role_world_size);
  };
  EXPECT_EQ(first_and_size(a), std::pair(0, 6));
  EXPECT_EQ(first_and_size(b), std::pair(0, 3));
  EXPECT_EQ(first_and_size(c), std::pair(2, 6));
  EXPECT_EQ(run.Sent<Start>(c)->rank_first, 5);
}

TEST(FormingTest, RanksThatWereAskedForAreGivenAndOthersFillUpInOrder) {
  TestRun run;
  const LinkId a = run.Joins("a", {.nodes = 4});
  const LinkId b = run.Joins("b", {.nodes = 4, .node_rank = 0});
  const LinkId c = run.Joins("c", {.nodes = 4, .node_rank = 2});
  const LinkId d = run.Joins("d", {.nodes = 4});
  EXPECT_EQ(run.Sent<Start>(a)->node_rank, 1);
  EXPECT_EQ(run.Sent<Start>(b)->node_rank, 0);
  EXPECT_EQ(run.Sent<Start>(c)->node_rank, 2);
  EXPECT_EQ(run.Sent<Start>(d)->node_rank, 3);
  EXPECT_EQ(run.Sent<Start>(a)->master_addr, "addr-b");
}

TEST(FormingTest, ATakenRankIsRefusedWithItsHolder) {
  TestRun run;
  run.Joins("a", {.node_rank = 0});
  const LinkId b = run.Joins("b", {.node_rank = 0});
  EXPECT_EQ(run.RefusalOf(b),
            "node rank 0 is held by node a already; start node b with another --node-rank, or "
            "without one");
  EXPECT_EQ(run.state.members.size(), 1u);
}

TEST(FormingTest, ARankOutOfRangeIsRefused) {
  TestRun run;
  const LinkId a = run.Joins("a", {.node_rank = 2});
  EXPECT_THAT(run.RefusalOf(a), HasSubstr("--node-rank 2, which is out of range with --nnodes 2"));
  EXPECT_TRUE(IsDrained(run.state));
}

TEST(FormingTest, DisagreementNamesBothSides) {
  TestRun run;
  run.Joins("a");
  EXPECT_EQ(run.RefusalOf(run.Joins("b", {.nodes = 3})),
            "node b was started with --nnodes 3, the run has --nnodes 2 (set by node a); start all "
            "nodes with the "
            "same --nnodes");
  EXPECT_EQ(run.RefusalOf(run.Joins("b", {.restarts = 1})),
            "node b was started with --max-restarts 1, the run has --max-restarts 0 (set by node "
            "a); start all nodes "
            "with the same --max-restarts");
}

TEST(FormingTest, BadJoinsAreRefused) {
  const auto refusal = [](const std::function<void(Join&)>& spoil) {
    TestRun run;
    Join join = MakeJoin("a", {});
    spoil(join);
    run.Do(NodeJoined{LinkId{1}, join});
    return run.RefusalOf(LinkId{1});
  };
  EXPECT_THAT(
      refusal([](Join& join) { join.protocol_version = 99; }),
      HasSubstr(absl::StrCat("node a speaks protocol 99 (ddprun 0), the service speaks protocol ",
                             kProtocolVersion)));
  EXPECT_THAT(refusal([](Join& join) { join.nodes_min = 3; }),
              HasSubstr("the least number of nodes 3; it must be 1 to 2"));
  EXPECT_THAT(refusal([](Join& join) { join.lease = milliseconds(3); }),
              HasSubstr("a lease in ms of 3"));
  EXPECT_THAT(refusal([](Join& join) { join.nodes_min = join.nodes_max = 0; }),
              HasSubstr("--nnodes 0"));
  EXPECT_THAT(refusal([](Join& join) { join.local_world_size = 0; }),
              HasSubstr("--nproc-per-node 0"));
  EXPECT_THAT(refusal([](Join& join) { join.restarts_max = -1; }), HasSubstr("--max-restarts -1"));
  EXPECT_THAT(refusal([](Join& join) { join.worker_port = 0; }), HasSubstr("worker port 0"));
  EXPECT_THAT(refusal([](Join& join) { join.join_timeout = milliseconds(0); }),
              HasSubstr("join timeout"));
  EXPECT_THAT(refusal([](Join& join) { join.address = ""; }), HasSubstr("without its address"));
  EXPECT_THAT(refusal([](Join& join) { join.node_id.value = ""; }), HasSubstr("without a node id"));
  EXPECT_THAT(refusal([](Join& join) { join.host = std::string(300, 'x'); }),
              HasSubstr("300 bytes"));
}

TEST(FormingTest, OneAgentJoinsOnce) {
  TestRun run;
  run.Joins("a");
  EXPECT_THAT(run.RefusalOf(run.Joins("a", {.local_world_size = 2})),
              HasSubstr("the id 'id-a' is in run 'run' already"));
}

TEST(FormingTest, ANodeThatGoesFreesItsPlace) {
  TestRun run;
  const LinkId a = run.Joins("a", {.node_rank = 0});
  const LinkId b = run.Joins("b", {.nodes = 2, .node_rank = 0});
  EXPECT_NE(run.RefusalOf(b), "not refused");
  run.Joins("c", {.nodes = 3});
  run.Goes(a);
  EXPECT_TRUE(IsDrained(run.state)) << "nobody is left";
  TestRun other;
  const LinkId d = other.Joins("d", {.nodes = 3, .node_rank = 0});
  other.Joins("e", {.nodes = 3, .node_rank = 1});
  other.Goes(d);
  EXPECT_TRUE(other.Sent<Finish>(LinkId{2}) == std::nullopt);
  const LinkId f = other.Joins("f", {.nodes = 3, .node_rank = 0});
  EXPECT_TRUE(other.Sent<Waiting>(f));
}

TEST(FormingTest, ChangedWordsAreHeldBackAndThenSent) {
  TestRun run;
  const LinkId a = run.Joins("a", {.nodes = 4});
  const LinkId b = run.Joins("b", {.nodes = 4});
  EXPECT_EQ(run.Sent<Waiting>(b)->reason, "waiting for 2 of 4 nodes");
  EXPECT_FALSE(run.Sent<Waiting>(a));
  const auto due = NextDeadline(run.state);
  ASSERT_TRUE(due);
  EXPECT_EQ(*due, run.now + kWaitingInterval);
  run.TicksAt(*due);
  EXPECT_EQ(*run.Sent<Waiting>(a), (Waiting{"waiting for 2 of 4 nodes", milliseconds(59'000)}));
  EXPECT_FALSE(run.Sent<Waiting>(b)) << "it knows";
  EXPECT_EQ(NextDeadline(run.state), *due + seconds(59));
}

TEST(FormingTest, WordsOfALargeRunAreHeldBackForLonger) {
  TestRun run;
  const LinkId first = run.Joins("first", {.nodes = 3000});
  for (int i = 1; i < 2 * static_cast<int>(kNodesPerWaitingInterval); ++i) {
    run.Joins(std::to_string(i), {.nodes = 3000});
  }
  EXPECT_EQ(NextDeadline(run.state), run.now + 3 * kWaitingInterval);
  run.TicksAt(run.now + 2 * kWaitingInterval);
  EXPECT_FALSE(run.Sent<Waiting>(first));
  run.TicksAt(run.now + kWaitingInterval);
  EXPECT_EQ(run.Sent<Waiting>(first)->reason, "waiting for 1000 of 3000 nodes");
}

TEST(FormingTest, TheJoinDeadlineClosesTheRun) {
  TestRun run;
  const LinkId a = run.Joins("a", {.nodes = 3, .node_rank = 1});
  run.TicksAt(run.now + seconds(59));
  EXPECT_EQ(run.state.phase, RunPhase::kForming);
  run.TicksAt(run.now + seconds(1));
  const auto finish = run.Sent<Finish>(a);
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->verdict.exit_code, 1);
  EXPECT_EQ(finish->verdict.cause->kind, FailureKind::kJoinTimeout);
  EXPECT_THAT(finish->verdict.cause->message,
              HasSubstr("run 'run': 2 of 3 nodes did not join within 60 s (node ranks 0, 2); here: "
                        "a; check that"));
  EXPECT_TRUE(run.Ended(a));
  EXPECT_FALSE(IsDrained(run.state));
  run.Goes(a);
  EXPECT_TRUE(IsDrained(run.state));
}

TEST(FormingTest, LeavingForGoodClosesTheRun) {
  TestRun run;
  const LinkId a = run.Joins("a", {.nodes = 3, .hosts_service = true});
  const LinkId b = run.Joins("b", {.nodes = 3});
  Failure reason;
  reason.kind = FailureKind::kNodeInterrupted;
  reason.signal = 15;
  run.Reports(a, Leave{reason, true});
  EXPECT_TRUE(run.Ended(a));
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.exit_code, 143);
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.cause->host, "a");
}

// ---- Sealed

class SealedTest : public ::testing::Test {
 protected:
  void Seal(int restarts) {
    a = run.Joins("a", {.restarts = restarts});
    b = run.Joins("b", {.restarts = restarts});
    ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  }
  TestRun run;
  LinkId a{};
  LinkId b{};
};

TEST_F(SealedTest, AllSucceeded) {
  Seal(0);
  run.Reports(a, NodeSucceeded{kFirst});
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  run.Reports(b, NodeSucceeded{kFirst});
  const Verdict expected{.success = true, .round = kFirst, .world_size = 2, .node_count = 2};
  EXPECT_EQ(run.Sent<Finish>(a)->verdict, expected);
  EXPECT_EQ(run.Sent<Finish>(b)->verdict, expected);
  EXPECT_TRUE(run.Ended(a) && run.Ended(b));
}

TEST_F(SealedTest, SuccessThatIsReportedTwiceCountsOnce) {
  Seal(0);
  run.Reports(a, NodeSucceeded{kFirst});
  run.Reports(a, NodeSucceeded{kFirst});
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

TEST_F(SealedTest, TheFirstFailureStopsEverybodyAtOnce) {
  Seal(0);
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(7)});
  EXPECT_EQ(run.Sent<Stop>(a)->cause.exit_code, 7);
  EXPECT_EQ(run.Sent<Stop>(b)->round, kFirst);
  EXPECT_EQ(NextDeadline(run.state), run.now + kStopTimeout);
  run.Reports(a, WorkerFailed{kFirst, ExitedWith(9)});
  EXPECT_TRUE(run.effects.empty());
  run.Reports(a, NodeStopped{kFirst, 1});
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Finish>(a)->verdict.exit_code, 7);
}

TEST_F(SealedTest, ReportsOfOtherRoundsMeanNothing) {
  Seal(0);
  for (const RoundId round : {RoundId{0}, RoundId{2}, RoundId{99}}) {
    run.Reports(a, WorkerFailed{round, ExitedWith(7)});
    run.Reports(a, NodeSucceeded{round});
    run.Reports(b, NodeSucceeded{round});
    EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  }
}

TEST_F(SealedTest, ALostNodeIsTheCauseEvenAfterItSucceeded) {
  Seal(0);
  run.Reports(b, NodeSucceeded{kFirst});
  run.Goes(b);
  const auto stop = run.Sent<Stop>(a);
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->cause.kind, FailureKind::kNodeLost);
  EXPECT_EQ(stop->cause.host, "b");
  EXPECT_EQ(stop->cause.node_rank, 1);
}

TEST_F(SealedTest, LeavingNamesTheReason) {
  Seal(3);
  Failure reason;
  reason.kind = FailureKind::kNodeInterrupted;
  reason.signal = 2;
  run.Reports(b, Leave{reason, false});
  EXPECT_EQ(run.Sent<Stop>(a)->cause.signal, 2);
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.cause->signal, 2);
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.exit_code, 130);
  EXPECT_TRUE(run.Ended(b));
  run.Reports(a, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.state.phase, RunPhase::kForming) << "others may take its place";
}

TEST_F(SealedTest, TheNextRoundDoesNotWaitForTheWorkersOfANodeThatLeaves) {
  Seal(3);
  run.Reports(b, Leave{InterruptedBy(2), false});
  EXPECT_EQ(run.state.phase, RunPhase::kBroken);
  run.Reports(a, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.exit_code, 130);
  EXPECT_TRUE(run.Ended(b));
  EXPECT_EQ(run.state.phase, RunPhase::kForming);
}

TEST_F(SealedTest, TheEndOfTheRunWaitsForTheWorkersOfANodeThatLeaves) {
  Seal(0);
  run.Reports(b, Leave{InterruptedBy(2), false});
  run.Reports(a, NodeStopped{kFirst, 1});
  EXPECT_FALSE(run.Sent<Finish>(a));
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.exit_code, 130);
  EXPECT_EQ(run.Sent<Finish>(a)->verdict.exit_code, 130);
}

TEST_F(SealedTest, ANodeThatLeavesAtOnceIsNotWaitedFor) {
  Seal(0);
  run.Reports(b, Leave{InterruptedBy(2), false, true});
  EXPECT_TRUE(run.Sent<Finish>(b));
  EXPECT_TRUE(run.Ended(b));
  run.Reports(a, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Finish>(a)->verdict.exit_code, 130);
}

TEST_F(SealedTest, NodesThatStopTooLateAreGivenUpTogether) {
  Seal(3);
  run.Reports(b, Leave{InterruptedBy(2), false});
  run.TicksAt(run.state.deadline);
  EXPECT_TRUE(run.Sent<Refused>(a));
  EXPECT_TRUE(run.Sent<Refused>(b));
  EXPECT_TRUE(run.state.members.empty());
}

// ---- The node that hosts the service

class HostedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    a = run.Joins("a", {.restarts = 3, .hosts_service = true});
    b = run.Joins("b", {.restarts = 3});
    ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  }
  TestRun run;
  LinkId a{};
  LinkId b{};
  const Failure interrupt = InterruptedBy(2);
};

TEST_F(HostedTest, TheHostLeavesLast) {
  run.Reports(a, Leave{interrupt, true});
  EXPECT_EQ(run.Sent<Stop>(b)->cause.signal, 2);
  EXPECT_TRUE(run.Sent<Stop>(b)->last);
  run.Reports(a, NodeStopped{kFirst, 1});
  EXPECT_FALSE(run.Ended(a)) << "b's workers have not ended";
  EXPECT_EQ(NextDeadline(run.state), run.now + kStopTimeout);
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Finish>(a)->verdict.exit_code, 130);
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.exit_code, 130);
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.cause->host, "a");
  EXPECT_TRUE(run.Ended(a) && run.Ended(b));
}

TEST_F(HostedTest, TheHostLeavesLastAlsoWhereAllWereToldToEnd) {
  run.Reports(b, Leave{interrupt, false});
  run.Reports(a, Leave{interrupt, true});
  run.Reports(a, NodeStopped{kFirst, 1});
  EXPECT_FALSE(run.Ended(a));
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.cause->host, "b");
  EXPECT_EQ(run.Sent<Finish>(a)->verdict.exit_code, 130);
}

TEST_F(HostedTest, AHostThatLeavesWhileARoundIsStoppedEndsTheRun) {
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(7)});
  EXPECT_FALSE(run.Sent<Stop>(a)->last);
  run.Reports(a, Leave{interrupt, true});
  EXPECT_TRUE(run.Sent<Stop>(b)->last) << "b's workers have the time of the end";
  run.Reports(a, NodeStopped{kFirst, 1});
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.exit_code, 130);
}

TEST_F(HostedTest, AHostThatDoesNotWaitTellsTheOthersFirst) {
  run.Reports(a, Leave{interrupt, true});
  run.Reports(a, Leave{interrupt, true, true});
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.exit_code, 130);
  EXPECT_TRUE(run.Ended(a) && run.Ended(b));
}

TEST_F(HostedTest, ALeaveThatIsRepeatedOnANewStreamChangesNothing) {
  run.Reports(a, Leave{interrupt, true});
  run.Reports(a, Leave{interrupt, true});
  EXPECT_TRUE(run.effects.empty());
  EXPECT_EQ(run.state.phase, RunPhase::kBroken);
}

TEST_F(SealedTest, LeavingForGoodAllowsNoRestart) {
  Seal(3);
  run.state.members.at(NodeId{"id-b"}).join.hosts_service = true;
  Failure reason;
  reason.kind = FailureKind::kNodeInterrupted;
  reason.signal = 15;
  run.Reports(b, Leave{reason, true});
  EXPECT_TRUE(IsEnding(run.state));
  run.Reports(b, NodeStopped{kFirst, 1});
  run.Reports(a, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Finish>(a)->verdict.exit_code, 143);
}

// ---- Broken

TEST_F(SealedTest, TheNextRoundHasTheSameRanksAndNewPorts) {
  Seal(1);
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(7)});
  run.Reports(a, NodeStopped{kFirst, 5000});
  EXPECT_FALSE(run.ChangedRound());
  run.Reports(b, NodeStopped{kFirst, 5001});
  EXPECT_EQ(run.ChangedRound(), kSecond);
  EXPECT_EQ(run.Sent<Start>(a)->round, kSecond);
  EXPECT_EQ(run.Sent<Start>(a)->node_rank, 0);
  EXPECT_EQ(run.Sent<Start>(a)->restart_count, 1);
  EXPECT_EQ(run.Sent<Start>(b)->master_port, 5000);
  run.Reports(a, WorkerFailed{kFirst, ExitedWith(8)});
  EXPECT_EQ(run.state.phase, RunPhase::kSealed) << "a late report of the first round";
  run.Reports(a, WorkerFailed{kSecond, ExitedWith(8)});
  run.Reports(a, NodeStopped{kSecond, 1});
  run.Reports(b, NodeStopped{kSecond, 1});
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.exit_code, 8) << "no restart is left";
}

TEST_F(SealedTest, ALostNodesPlaceIsKeptForAReplacementUntilANewDeadline) {
  Seal(2);
  run.now += seconds(1000);
  run.Goes(a);
  run.Reports(b, NodeStopped{kFirst, 5001});
  EXPECT_THAT(run.Sent<Waiting>(b)->reason,
              HasSubstr("waiting for 1 of 2 nodes: node rank 0 has not joined (round 1 ended: "));
  EXPECT_EQ(NextDeadline(run.state), run.now + seconds(60));
  const LinkId c = run.Joins("c", {.restarts = 2});
  EXPECT_EQ(run.Sent<Start>(c)->node_rank, 0);
  EXPECT_EQ(run.Sent<Start>(b)->node_rank, 1);
}

TEST_F(SealedTest, ARoundThatStaysIncompleteNamesWhatBrokeTheOneBefore) {
  Seal(1);
  run.Goes(a);
  run.Reports(b, NodeStopped{kFirst, 5001});
  run.TicksAt(*NextDeadline(run.state));
  EXPECT_THAT(run.Sent<Finish>(b)->verdict.cause->message,
              HasSubstr("the round before ended because node a (node rank 0) was lost"));
}

TEST_F(SealedTest, ANewcomerWaitsUntilTheBrokenRoundIsStopped) {
  Seal(1);
  run.Goes(a);
  const LinkId c = run.Joins("c", {.restarts = 1});
  EXPECT_EQ(run.Sent<Waiting>(c)->reason,
            "waiting for the other nodes to stop the workers of round 1");
  EXPECT_FALSE(run.Sent<Stop>(c));
  run.Reports(b, NodeStopped{kFirst, 5001});
  EXPECT_EQ(run.Sent<Start>(c)->node_rank, 0);
}

TEST_F(SealedTest, ANodeThatDoesNotStopIsTakenOut) {
  Seal(1);
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(7)});
  run.Reports(a, NodeStopped{kFirst, 5000});
  run.TicksAt(*NextDeadline(run.state));
  EXPECT_THAT(run.RefusalOf(b), HasSubstr("node b did not stop its workers within 60 s"));
  EXPECT_EQ(run.state.phase, RunPhase::kForming);
  EXPECT_EQ(run.state.cause->exit_code, 7);
  run.Reports(b, NodeStopped{kFirst, 5000});
  EXPECT_TRUE(run.effects.empty()) << "it is no member any more";
}

TEST_F(SealedTest, ANodeMayAskForMoreTimeToStop) {
  a = run.Joins("a", {.restarts = 1, .stop_timeout = std::chrono::minutes(31)});
  b = run.Joins("b", {.restarts = 1});
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(7)});
  EXPECT_EQ(NextDeadline(run.state), run.now + std::chrono::minutes(31));
  run.Reports(b, NodeStopped{kFirst, 5000});
  run.TicksAt(*NextDeadline(run.state));
  EXPECT_THAT(run.RefusalOf(a), HasSubstr("node a did not stop its workers within 1860 s"));
}

TEST_F(SealedTest, ATimeToStopBeyondReasonIsRefused) {
  const LinkId c = run.Joins("c", {.stop_timeout = std::chrono::hours(26)});
  EXPECT_THAT(run.RefusalOf(c), HasSubstr("a time to stop"));
}

TEST_F(SealedTest, TheNodesAreToldWhetherARoundFollows) {
  for (const int restarts : {0, 1}) {
    run = TestRun();
    Seal(restarts);
    run.Reports(b, WorkerFailed{kFirst, ExitedWith(7)});
    EXPECT_EQ(run.Sent<Stop>(a)->last, restarts == 0);
  }
}

TEST_F(SealedTest, NodesLostWhileStoppingDoNotHoldUpTheOthers) {
  Seal(0);
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(7)});
  run.Goes(b);
  run.Reports(a, NodeStopped{kFirst, 5000});
  EXPECT_EQ(run.Sent<Finish>(a)->verdict.exit_code, 7);
  EXPECT_EQ(run.Sent<Finish>(a)->verdict.cause->kind, FailureKind::kWorkerExited);
}

TEST_F(SealedTest, ARunWithoutNodesIsOver) {
  Seal(5);
  run.Goes(a);
  run.Goes(b);
  EXPECT_TRUE(IsDrained(run.state));
}

// ---- Closed

TEST_F(SealedTest, ALateNodeIsToldHowTheRunEnded) {
  Seal(0);
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(7)});
  EXPECT_THAT(run.RefusalOf(run.Joins("c")), HasSubstr("which is over: rank 1"))
      << "no restart is left";
  run.Reports(a, NodeStopped{kFirst, 1});
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.RefusalOf(run.Joins("c")),
            "node c is too late for run 'run', which is over: rank 1 (local rank 0 on host b) "
            "exited with code 7");
}

TEST_F(SealedTest, EndingStreamsIsExpectedAfterTheVerdict) {
  Seal(0);
  run.Reports(a, NodeSucceeded{kFirst});
  run.Reports(b, NodeSucceeded{kFirst});
  run.Goes(a);
  EXPECT_TRUE(run.effects.empty());
  EXPECT_FALSE(IsDrained(run.state));
  run.Goes(b);
  EXPECT_TRUE(IsDrained(run.state));
  EXPECT_TRUE(run.state.verdict->success);
}

}  // namespace
}  // namespace ddprun
