// SPDX-License-Identifier: Apache-2.0
// What a member's reports may say, and what becomes of those that say more.
#include "rendezvous/membership/membership_step.h"

#include <gtest/gtest.h>

#include <csignal>

#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

constexpr RoundId kFirst{1};

Member MemberB() {
  Member member;
  member.join = MakeJoin("b", {.local_world_size = 2});
  member.node_rank = 1;
  member.rank_first = 2;
  return member;
}

Failure Reported(FailureKind kind) {
  Failure failure = ExitedWith(7);
  failure.kind = kind;
  failure.rank = 3;
  return failure;
}

TEST(ReportRulesTest, WhoReportsIsFilledIn) {
  Failure forged = Reported(FailureKind::kWorkerExited);
  forged.host = "a";
  forged.node_rank = 0;
  const Failure failure = WorkerFailureFrom(MemberB(), forged);
  EXPECT_EQ(failure.host, "b");
  EXPECT_EQ(failure.node_rank, 1);
  EXPECT_EQ(failure.rank, 3);
  EXPECT_EQ(failure.local_rank, 1);
  EXPECT_EQ(failure.exit_code, 7);
}

TEST(ReportRulesTest, ARankOfAnotherNodeIsNoRankOfThisOne) {
  Failure forged = Reported(FailureKind::kWorkerExited);
  forged.rank = 0;
  forged.local_rank = 1;
  EXPECT_EQ(WorkerFailureFrom(MemberB(), forged).rank, 3);
  forged.local_rank = 5;
  EXPECT_EQ(WorkerFailureFrom(MemberB(), forged).rank, -1);
  EXPECT_EQ(WorkerFailureFrom(MemberB(), forged).local_rank, -1);
}

TEST(ReportRulesTest, ExitCodesAreThoseOfAProcess) {
  const std::pair<int, int> cases[] = {{256, 1}, {512, 1}, {0, 1},     {-1, 1},
                                       {1, 1},   {77, 77}, {255, 255}, {1 << 30, 1}};
  for (const auto& [code, expected] : cases) {
    for (const FailureKind kind : {FailureKind::kWorkerExited, FailureKind::kSpawnFailed}) {
      Failure forged = Reported(kind);
      forged.exit_code = code;
      const Failure failure = WorkerFailureFrom(MemberB(), forged);
      EXPECT_EQ(failure.exit_code, expected) << code;
      EXPECT_EQ(ToExitCode(failure), expected) << code;
      EXPECT_EQ(ToExitCode(forged), expected) << code << ": of a failure from wherever";
    }
  }
}

TEST(ReportRulesTest, ASignalThatDoesNotExistIsAnExit) {
  for (const int signal : {0, -9, 128, 1 << 20}) {
    Failure forged = Reported(FailureKind::kWorkerSignaled);
    forged.signal = signal;
    const Failure failure = WorkerFailureFrom(MemberB(), forged);
    EXPECT_EQ(failure.kind, FailureKind::kWorkerExited) << signal;
    EXPECT_EQ(ToExitCode(forged), 1) << signal;
  }
  Failure killed = Reported(FailureKind::kWorkerSignaled);
  killed.signal = SIGKILL;
  EXPECT_EQ(ToExitCode(WorkerFailureFrom(MemberB(), killed)), 137);
}

// Else a member would say that an operator stopped the run, or drained a node, which is no failure.
TEST(ReportRulesTest, OnlyTheServiceSaysWhatIsNoWorkersFailure) {
  for (const FailureKind kind :
       {FailureKind::kNodeLost, FailureKind::kNodeInterrupted, FailureKind::kJoinTimeout,
        FailureKind::kRunStopped, FailureKind::kNodeDrained}) {
    EXPECT_EQ(WorkerFailureFrom(MemberB(), Reported(kind)).kind, FailureKind::kWorkerExited);
    EXPECT_EQ(LeaveReasonFrom(MemberB(), Reported(kind)).kind, FailureKind::kNodeInterrupted);
  }
  EXPECT_EQ(LeaveReasonFrom(MemberB(), Reported(FailureKind::kNodeLost)).host, "b");
  EXPECT_EQ(LeaveReasonFrom(MemberB(), Reported(FailureKind::kNodeLost)).rank, -1);
}

// What a hang says decides which of several is the cause.
TEST(ReportRulesTest, OnlyAHungWorkerHasAHang) {
  Failure forged = Reported(FailureKind::kWorkerExited);
  forged.hang = Hang{.step = 0};
  EXPECT_FALSE(WorkerFailureFrom(MemberB(), forged).hang);
  EXPECT_TRUE(WorkerFailureFrom(MemberB(), Reported(FailureKind::kWorkerHung)).hang);
}

TEST(ReportRulesTest, AWorkerThatEndedEarlyHasTheExitCodeOfWhatItCaused) {
  Failure early = Reported(FailureKind::kWorkerEndedEarly);
  early.exit_code = 134;
  const Failure failure = WorkerFailureFrom(MemberB(), early);
  EXPECT_EQ(failure.kind, FailureKind::kWorkerEndedEarly);
  EXPECT_EQ(ToExitCode(failure), 134);
}

TEST(ReportRulesTest, OnlyItsOwnWorkersWaitSomewhere) {
  Failure failure = Reported(FailureKind::kWorkerExited);
  failure.places = {{.ranks = {{0, 1}, {2, 3}}, .place = {}}, {.ranks = {{4, 4}}, .place = {}}};
  failure = WorkerFailureFrom(MemberB(), failure);
  ASSERT_EQ(failure.places.size(), 1u);
  EXPECT_EQ(failure.places[0].ranks, (std::vector<RankRange>{{2, 3}}));
}

TEST(ReportRulesTest, EachWorkerEndsOnce) {
  const std::vector<WorkerEnds> forged = {
      {EndKind::kExited, 256, 0, 1},   {EndKind::kExited, 3, 0, 2}, {EndKind::kLost, 0, 1, 1},
      {EndKind::kSignaled, 999, 1, 1}, {EndKind::kExited, 3, 2, 1}, {EndKind::kExited, 3, -1, 1}};
  EXPECT_EQ(WorkerEndsFrom(MemberB(), forged),
            (std::vector<WorkerEnds>{{EndKind::kExited, 1, 0, 1}, {EndKind::kStopped, 0, 1, 1}}));
}

// ---- In a run

class ForgedReportTest : public ::testing::Test {
 protected:
  void Seal(JoinOptions options = {.restarts = 5}) {
    a = run.Joins("a", options);
    b = run.Joins("b", options);
    ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  }
  TestRun run;
  LinkId a{}, b{};
};

TEST_F(ForgedReportTest, AnotherHostIsNeitherBlamedNorLeftOut) {
  Seal({.restarts = 5, .policy = {.node_failures_max = 1}});
  Failure forged = ExitedWith(7);
  forged.host = "a";
  run.Reports(b, WorkerFailed{kFirst, forged});
  EXPECT_EQ(run.state.cause->host, "b");
  EXPECT_EQ(run.state.cause->node_rank, 1);
  run.Reports(a, NodeStopped{kFirst, 1, {}});
  run.Reports(b, NodeStopped{kFirst, 1, {}});
  EXPECT_TRUE(run.state.members.contains(NodeId{"id-a"})) << "it has done nothing";
}

TEST_F(ForgedReportTest, AFailedRunNeverEndsWith0) {
  Seal({.restarts = 0});
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(256)});
  run.Reports(a, NodeStopped{kFirst, 1, {}});
  run.Reports(b, NodeStopped{kFirst, 1, {}});
  ASSERT_TRUE(run.state.verdict);
  EXPECT_EQ(run.state.verdict->exit_code, 1);
}

TEST_F(ForgedReportTest, OnlyTheHostClosesTheRun) {
  Seal();
  Leave leave;
  leave.reason.kind = FailureKind::kNodeInterrupted;
  leave.close_run = true;
  run.Reports(b, leave);
  EXPECT_TRUE(run.state.may_restart);
  run.Reports(a, NodeStopped{kFirst, 1, {}});
  EXPECT_EQ(run.state.phase, RunPhase::kForming) << "it waits for a replacement";
}

TEST_F(ForgedReportTest, APortThatIsNoneIsNotTheMasters) {
  Seal();
  run.Reports(b, WorkerFailed{kFirst, ExitedWith(7)});
  run.Reports(a, NodeStopped{kFirst, 1 << 20, {}});
  run.Reports(b, NodeStopped{kFirst, 4001, {}});
  EXPECT_EQ(run.Sent<Start>(a)->master_port, 4000);
}

}  // namespace
}  // namespace ddprun
