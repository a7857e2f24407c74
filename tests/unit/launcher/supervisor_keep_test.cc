// SPDX-License-Identifier: Apache-2.0
// Workers that are kept when their round breaks.
#include "tests/unit/launcher/supervisor_fixture.h"

namespace ddprun {
namespace {

class SupervisorKeepTest : public SupervisorTest {
 protected:
  std::vector<TerminateWorkers> Terminations() const { return Of<TerminateWorkers>(all_); }
  // Round 1 was broken by this node, and all others of its workers have left it.
  void BreakAndLeave() {
    Feed(StartOf(1));
    Feed(Ended(1, Signaled{SIGKILL}));
    Feed(AllGone{.kept = true});
  }
};

TEST_F(SupervisorKeepTest, TheNextRoundFollowsWithoutASignal) {
  BreakAndLeave();
  ASSERT_EQ(Terminations().size(), 1u);
  EXPECT_TRUE(Terminations()[0].keep);
  EXPECT_FALSE(Last<ReportStopped>()) << "the service has not asked yet";
  Feed(Stop{RoundId{1}, CauseElsewhere(), false});
  EXPECT_TRUE(Last<ReportStopped>());
  EXPECT_EQ(state_.phase, Phase::kWaiting);
  EXPECT_EQ(NextDeadline(state_), std::nullopt);
  Feed(StartOf(2, 1));
  EXPECT_TRUE(Last<SpawnRound>());
  EXPECT_EQ(Terminations().size(), 1u);
}

TEST_F(SupervisorKeepTest, WithoutRestartsNobodyIsKept) {
  Start start = StartOf(1);
  start.restarts_max = 0;
  Feed(start);
  Feed(Ended(1, Exited{1}));
  EXPECT_FALSE(Terminations().at(0).keep);
}

TEST_F(SupervisorKeepTest, TheRunsEndStopsKeptWorkersBeforeTheAnswer) {
  BreakAndLeave();
  Feed(Stop{RoundId{1}, CauseElsewhere(), true});
  ASSERT_EQ(Terminations().size(), 2u);
  EXPECT_FALSE(Terminations()[1].keep);
  EXPECT_FALSE(Last<ReportStopped>());
  Feed(AllGone{});
  EXPECT_TRUE(Last<ReportStopped>());
  Feed(FinishOf(false, 9));
  EXPECT_EQ(TheEnd().exit_code, 9);
}

TEST_F(SupervisorKeepTest, WhenItIsLearntBeforeTheyHaveLeftTheyAreStoppedAtOnce) {
  Feed(StartOf(1));
  Feed(Ended(1, Exited{1}));
  const TimePoint told = now_;
  now_ += seconds(1);
  Feed(Stop{RoundId{1}, CauseElsewhere(), true});
  ASSERT_EQ(Terminations().size(), 2u);
  EXPECT_FALSE(Terminations()[1].keep);
  EXPECT_EQ(NextDeadline(state_), told + seconds(10));
}

TEST_F(SupervisorKeepTest, AVerdictWhileTheyWaitStopsThem) {
  BreakAndLeave();
  Feed(Stop{RoundId{1}, CauseElsewhere(), false});
  Feed(FinishOf(false, 7));
  EXPECT_FALSE(Terminations().back().keep);
  EXPECT_FALSE(Last<End>());
  EXPECT_EQ(NextDeadline(state_), now_ + seconds(10));
  Feed(AllGone{});
  EXPECT_EQ(TheEnd().exit_code, 7);
}

TEST_F(SupervisorKeepTest, ASignalWhileTheyWaitStopsThem) {
  BreakAndLeave();
  Feed(Stop{RoundId{1}, CauseElsewhere(), false});
  Feed(SignalReceived{SIGINT});
  EXPECT_FALSE(Terminations().back().keep);
  EXPECT_EQ(Terminations().back().signal, SIGINT);
  Feed(AllGone{});
  Feed(FinishOf(false, 1));
  EXPECT_EQ(TheEnd().exit_code, 130);
}

TEST_F(SupervisorKeepTest, ALossOfTheServiceStopsThem) {
  BreakAndLeave();
  Feed(Stop{RoundId{1}, CauseElsewhere(), false});
  Feed(SessionEnded{absl::UnavailableError("gone")});
  EXPECT_FALSE(Terminations().back().keep);
  Feed(AllGone{});
  EXPECT_EQ(TheEnd().exit_code, 1);
}

TEST_F(SupervisorKeepTest, TheDeadlineKillsOnlyThoseThatHaveNotLeft) {
  Feed(StartOf(1));
  Feed(Stop{RoundId{1}, CauseElsewhere(), false});
  EXPECT_TRUE(Terminations().at(0).keep);
  Pass(seconds(4));
  ASSERT_TRUE(Last<KillWorkers>());
  EXPECT_TRUE(Of<KillWorkers>(last_)[0].keep);
  EXPECT_THAT(Of<PrintNote>(last_).at(0).text,
              ::testing::HasSubstr("within 4 s of SIGTERM, or leave the round, are killed"));
  Feed(AllGone{.kept = true});
  EXPECT_TRUE(Last<ReportStopped>());
}

TEST_F(SupervisorKeepTest, KeptWorkersOfAKilledRoundEndWithTheRun) {
  Feed(StartOf(1));
  Feed(Stop{RoundId{1}, CauseElsewhere(), false});
  Pass(seconds(4));
  Feed(FinishOf(false, 7));
  Feed(AllGone{.kept = true});  // it crossed the order to end
  EXPECT_FALSE(Terminations().back().keep);
  EXPECT_FALSE(Last<End>());
  Feed(AllGone{});
  EXPECT_EQ(TheEnd().exit_code, 7);
}

TEST_F(SupervisorKeepTest, ParkedWorkersAreStoppedOnceTheRunHasSucceeded) {
  Feed(StartOf(1));
  Feed(Ended(0, Exited{0}));
  Feed(Ended(1, Exited{0}));
  Feed(AllGone{.kept = true});
  EXPECT_EQ(Reports<NodeSucceeded>().size(), 1u);
  EXPECT_TRUE(Terminations().empty());
  Feed(FinishOf(true, 0));
  EXPECT_FALSE(Terminations().at(0).keep);
  Feed(AllGone{});
  EXPECT_EQ(TheEnd().exit_code, 0);
}

TEST_F(SupervisorKeepTest, ANodeThatHasSucceededAnswersALastStopWhenItsParkedWorkersHaveEnded) {
  Feed(StartOf(1));
  Feed(AllGone{.kept = true});
  Feed(Stop{RoundId{1}, CauseElsewhere(), true});
  EXPECT_FALSE(Last<ReportStopped>());
  Feed(AllGone{});
  EXPECT_TRUE(Last<ReportStopped>());
}

TEST_F(SupervisorKeepTest, AWorkerThatLeavesByItselfBreaksTheRound) {
  Feed(StartOf(1));
  WorkerLeft left;
  left.local_rank = 1;
  left.pid = 101;
  left.error = "Connection closed by peer";
  Feed(left);
  const auto reports = Reports<WorkerFailed>();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].failure.kind, FailureKind::kCollectiveFailed);
  EXPECT_EQ(reports[0].failure.rank, 3);
  EXPECT_TRUE(Terminations().at(0).keep);
  EXPECT_EQ(ToSentence(reports[0].failure),
            "rank 3 (local rank 1 on host b, pid 101) left the round: Connection closed by peer");
  // A death that is the origin takes its place, and not the other way round.
  Feed(Ended(0, Signaled{SIGKILL}));
  EXPECT_EQ(Reports<WorkerFailed>().size(), 2u);
  Feed(left);
  EXPECT_EQ(Reports<WorkerFailed>().size(), 2u);
}

}  // namespace
}  // namespace ddprun
