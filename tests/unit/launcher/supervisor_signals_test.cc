// SPDX-License-Identifier: Apache-2.0
// What the supervisor does when it gets a signal, or loses its warden or its head.
#include "tests/unit/launcher/supervisor_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(SupervisorTest, ASignalLeavesTheRunAndStopsTheWorkers) {
  config_.hosts_service = true;
  Feed(StartOf(1));
  Feed(SignalReceived{SIGINT});
  ASSERT_EQ(Reports<Leave>().size(), 1u);
  EXPECT_TRUE(Reports<Leave>()[0].close_run);
  EXPECT_EQ(Reports<Leave>()[0].reason.kind, FailureKind::kNodeInterrupted);
  EXPECT_EQ(Reports<Leave>()[0].reason.signal, SIGINT);
  ASSERT_EQ(Of<TerminateWorkers>(last_).size(), 1u);
  EXPECT_EQ(Of<TerminateWorkers>(last_)[0].signal, SIGINT) << "as torchrun's workers get it";
  Feed(Stopped(0));
  EXPECT_THAT(Reports<WorkerFailed>(), IsEmpty());
  Feed(AllGone{});
  EXPECT_TRUE(Last<ReportStopped>());
  Feed(SessionEnded{absl::OkStatus()});
  EXPECT_EQ(TheEnd().exit_code, 130);
  EXPECT_THAT(TheEnd().text, HasSubstr("SIGINT"));
}

TEST_F(SupervisorTest, WorkersGetSigtermForASignalThatTheyDoNotExpect) {
  config_.hosts_service = true;
  Feed(StartOf(1));
  Feed(SignalReceived{.signal = SIGXCPU, .to_workers = SIGTERM});
  EXPECT_EQ(Reports<Leave>()[0].reason.signal, SIGXCPU);
  ASSERT_EQ(Of<TerminateWorkers>(last_).size(), 1u);
  EXPECT_EQ(Of<TerminateWorkers>(last_)[0].signal, SIGTERM);
  Feed(Stopped(0));
  Feed(AllGone{});
  Feed(SessionEnded{absl::OkStatus()});
  EXPECT_EQ(TheEnd().exit_code, 128 + SIGXCPU);
  EXPECT_THAT(TheEnd().text, HasSubstr("got SIGXCPU\n"));
}

Finish LeftBy(int signal) {
  Verdict verdict;
  verdict.cause.emplace();
  verdict.cause->kind = FailureKind::kNodeInterrupted;
  verdict.cause->host = "b";
  verdict.cause->node_rank = 1;
  verdict.cause->signal = signal;
  verdict.exit_code = 128 + signal;
  return Finish{verdict};
}

TEST_F(SupervisorTest, ARunThatIsInterruptedSaysWhereItsRanksWaited) {
  config_.hosts_service = true;
  Feed(StartOf(1));
  Feed(SignalReceived{SIGINT});
  Feed(Stopped(0));
  Feed(Stopped(1));
  Feed(AllGone{});
  Finish finish = LeftBy(SIGINT);
  finish.verdict.cause->places = {
      {.ranks = {{0, 0}}, .place = {Collective{"0", 11, "barrier"}, {}}}};
  Feed(finish);
  EXPECT_EQ(TheEnd().text,
            "ddprun: run ended: ddprun on b got SIGINT\n"
            "  collectives: rank 0 waits in barrier 11\n"
            "  exit code: 130\n");
}

TEST_F(SupervisorTest, WhatItsRanksWaitForIsShownWhileTheyRun) {
  Feed(StartOf(1));
  Feed(Waiting{"no progress for 60 s", {}});
  ASSERT_EQ(Of<PrintNote>(last_).size(), 1u);
  EXPECT_EQ(Of<PrintNote>(last_)[0].text, "no progress for 60 s");
}

TEST_F(SupervisorTest, ANodeThatWasToldToEndHearsSoAndEndsInItsOwnWords) {
  Feed(StartOf(1));
  Feed(SignalReceived{SIGINT});
  EXPECT_FALSE(Reports<Leave>()[0].close_run);
  EXPECT_FALSE(Reports<Leave>()[0].at_once);
  Feed(Stop{RoundId{1}, CauseElsewhere(), true});
  EXPECT_TRUE(Of<ReportStopped>(all_).empty()) << "its workers live";
  Feed(Stopped(0));
  Feed(Stopped(1));
  Feed(AllGone{});
  ASSERT_EQ(Of<ReportStopped>(last_).size(), 1u);
  EXPECT_EQ(Of<ReportStopped>(last_)[0].round, RoundId{1});
  EXPECT_EQ(Of<ReportStopped>(last_)[0].ends,
            (std::vector<WorkerEnds>{{EndKind::kStopped, 0, 0, 2}}));
  Feed(LeftBy(SIGINT));
  EXPECT_EQ(TheEnd().exit_code, 130);
  EXPECT_EQ(TheEnd().text,
            "ddprun: this node has left the run: node b (node rank 1) was interrupted by SIGINT\n"
            "  exit code: 130\n");
  ASSERT_TRUE(TheEnd().verdict);
  EXPECT_EQ(TheEnd().verdict->exit_code, 130);
}

TEST_F(SupervisorTest, AVerdictWhileItsWorkersSaveDoesNotCutThemShort) {
  Feed(StartOf(1));
  Feed(SignalReceived{SIGTERM});
  const auto deadline = NextDeadline(state_);
  Feed(LeftBy(SIGTERM));
  EXPECT_TRUE(Of<KillWorkers>(all_).empty());
  EXPECT_EQ(NextDeadline(state_), deadline);
  Feed(AllGone{});
  EXPECT_EQ(TheEnd().exit_code, 143);
}

TEST_F(SupervisorTest, ARoundThatNeverStartedHereIsAnsweredWhileLeaving) {
  Feed(Waiting{"for node 0", seconds(5)});
  Feed(SignalReceived{SIGTERM});
  Feed(StartOf(1));  // crossed the Leave on the way
  EXPECT_TRUE(Of<SpawnRound>(all_).empty());
  Feed(Stop{RoundId{1}, CauseElsewhere(), false});
  ASSERT_EQ(Of<ReportStopped>(last_).size(), 1u);
  EXPECT_EQ(Of<ReportStopped>(last_)[0].round, RoundId{1});
}

TEST_F(SupervisorTest, ANodeWhoseWorkersHaveEndedAnswersStopWhileLeaving) {
  Feed(StartOf(1));
  Feed(AllGone{});
  Feed(SignalReceived{SIGTERM});
  Feed(Stop{RoundId{1}, CauseElsewhere(), true});
  EXPECT_TRUE(Last<ReportStopped>());
}

TEST_F(SupervisorTest, TheNodeThatHostsTheServiceIsTheLastToGo) {
  config_.hosts_service = true;
  Feed(StartOf(1));
  Feed(SignalReceived{SIGINT});
  Feed(AllGone{});
  EXPECT_TRUE(Last<ReportStopped>());
  Pass(kLeaveTimeout + kNoticeDelay);
  EXPECT_TRUE(Of<End>(all_).empty());
  ASSERT_FALSE(Of<PrintNote>(last_).empty());
  EXPECT_THAT(Of<PrintNote>(last_)[0].text,
              HasSubstr("waiting for the workers of the other nodes"));
  Pass(seconds(60));
  EXPECT_TRUE(Of<End>(all_).empty()) << "the service's deadline for the others decides";
  Feed(LeftBy(SIGINT));
  EXPECT_EQ(TheEnd().exit_code, 130);
  EXPECT_THAT(TheEnd().text, HasSubstr("run ended"));
}

TEST_F(SupervisorTest, ASecondSignalDoesNotWaitForOtherNodes) {
  config_.hosts_service = true;
  Feed(StartOf(1));
  Feed(SignalReceived{SIGINT});
  Feed(AllGone{});
  now_ += seconds(1);
  Feed(SignalReceived{SIGINT});
  ASSERT_EQ(Reports<Leave>().size(), 2u);
  EXPECT_TRUE(Reports<Leave>()[1].at_once);
  EXPECT_EQ(TheEnd().exit_code, 130);
}

TEST_F(SupervisorTest, TheFirstSignalWhileTheRunEndsIsNotASecondOne) {
  Feed(StartOf(1));
  Feed(FinishOf(false, 9));
  now_ += seconds(4);
  Feed(SignalReceived{SIGINT});
  EXPECT_FALSE(Last<KillWorkers>());
  ASSERT_TRUE(Last<PrintNote>());
  EXPECT_EQ(Of<PrintNote>(last_)[0].text,
            "got SIGINT: the run is ending already, the workers have 6 s left; a second signal "
            "kills them at once");
  EXPECT_THAT(Feed(SignalReceived{SIGINT}), IsEmpty()) << "an echo";
  now_ += kSignalEchoTime;
  Feed(SignalReceived{SIGINT});
  EXPECT_TRUE(Last<KillWorkers>());
  Feed(AllGone{});
  EXPECT_EQ(TheEnd().exit_code, 9);
}

TEST_F(SupervisorTest, SomebodyWhoDoesNotWantToWaitIsHeardWhileLeaving) {
  Feed(StartOf(1));
  Feed(SignalReceived{SIGINT});
  Failure now;
  now.kind = FailureKind::kRunStopped;
  now.signal = SIGKILL;
  Feed(Stop{RoundId{1}, now, true});
  EXPECT_TRUE(Last<KillWorkers>());
}

TEST_F(SupervisorTest, WithoutAVerdictALeavingNodeEndsByItself) {
  Feed(StartOf(1));
  Feed(SignalReceived{SIGTERM});
  EXPECT_FALSE(Reports<Leave>()[0].close_run);
  Feed(AllGone{});
  EXPECT_TRUE(Of<End>(all_).empty());
  EXPECT_EQ(NextDeadline(state_), now_ + kLeaveTimeout);
  Pass(kLeaveTimeout);
  EXPECT_EQ(TheEnd().exit_code, 143);
}

TEST_F(SupervisorTest, TheSecondSignalKillsButAnEchoDoesNot) {
  Feed(StartOf(1));
  Feed(SignalReceived{SIGINT});
  now_ += kSignalEchoTime - milliseconds(1);
  EXPECT_THAT(Feed(SignalReceived{SIGINT}), IsEmpty());
  now_ += milliseconds(1);
  Feed(SignalReceived{SIGINT});
  EXPECT_TRUE(Last<KillWorkers>());
}

TEST_F(SupervisorTest, ASignalBeforeAnyoneKnowsOfTheNodeEndsItAtOnce) {
  Feed(Connecting{"connection refused", seconds(5)});
  Feed(SignalReceived{SIGINT});
  EXPECT_EQ(TheEnd().exit_code, 130);
}

TEST_F(SupervisorTest, ALostWardenKillsAtOnce) {
  Feed(StartOf(1));
  Feed(WardenLost{});
  EXPECT_TRUE(Last<KillWorkers>());
  EXPECT_EQ(Reports<Leave>()[0].reason.signal, SIGKILL);
  EXPECT_TRUE(Reports<Leave>()[0].at_once);
  Feed(AllGone{});
  Pass(kLeaveTimeout);
  EXPECT_EQ(TheEnd().exit_code, 137);
}

TEST_F(SupervisorTest, ALostControlPipeLeavesLittleTime) {
  Feed(StartOf(1));
  Feed(ControlPipeLost{});
  EXPECT_TRUE(Last<TerminateWorkers>());
  ASSERT_EQ(Reports<Leave>().size(), 1u);
  EXPECT_EQ(Reports<Leave>()[0].reason.signal, 0);
  EXPECT_THAT(Reports<Leave>()[0].reason.message, HasSubstr("the ddprun that started it"));
  Pass(kControlPipeGrace - milliseconds(1));
  EXPECT_FALSE(Last<KillWorkers>());
  Pass(milliseconds(1));
  EXPECT_TRUE(Last<KillWorkers>());
  Feed(AllGone{});
  Pass(kControlPipeLeaveTimeout);
  EXPECT_EQ(TheEnd().exit_code, 128 + SIGHUP);
}

TEST_F(SupervisorTest, ALostControlPipeHurriesWorkersThatAreBeingStopped) {
  Feed(StartOf(1));
  Feed(SignalReceived{SIGINT});
  now_ += seconds(1);
  Feed(ControlPipeLost{});
  Pass(kControlPipeGrace);
  EXPECT_TRUE(Last<KillWorkers>());
}

}  // namespace
}  // namespace ddprun
