// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/supervisor.h"

#include "tests/unit/launcher/supervisor_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST_F(SupervisorTest, AGoodRun) {
  Feed(Waiting{"node 0 is missing", seconds(5)});
  EXPECT_THAT(last_, IsEmpty());
  Feed(StartOf(1));
  ASSERT_TRUE(Last<SpawnRound>());
  EXPECT_THAT(Feed(Ended(1, Exited{0})), IsEmpty());
  EXPECT_THAT(Feed(Ended(0, Exited{0})), IsEmpty());
  Feed(AllGone{});
  ASSERT_EQ(Reports<NodeSucceeded>().size(), 1u);
  EXPECT_EQ(Reports<NodeSucceeded>()[0].round, RoundId{1});
  EXPECT_TRUE(Of<End>(all_).empty());
  Feed(FinishOf(true, 0));
  EXPECT_EQ(TheEnd().exit_code, 0);
  EXPECT_EQ(TheEnd().text, "");
  EXPECT_EQ(NextDeadline(state_), std::nullopt);
}

TEST_F(SupervisorTest, TheFirstFailureIsReportedBeforeTheOthersAreStopped) {
  Feed(StartOf(1));
  Feed(Ended(1, Signaled{SIGKILL}));
  ASSERT_EQ(last_.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<SendReport>(last_[0]));
  EXPECT_TRUE(std::holds_alternative<TerminateWorkers>(last_[1]));
  ASSERT_EQ(Reports<WorkerFailed>().size(), 1u);
  const Failure failure = Reports<WorkerFailed>()[0].failure;
  EXPECT_EQ(failure.kind, FailureKind::kWorkerSignaled);
  EXPECT_EQ(failure.rank, 3);
  EXPECT_EQ(failure.local_rank, 1);
  EXPECT_EQ(failure.node_rank, 1);
  EXPECT_EQ(failure.host, "b");
  EXPECT_EQ(failure.pid, 101);
  EXPECT_THAT(failure.last_lines, ::testing::ElementsAre("last words"));
}

TEST_F(SupervisorTest, BeforeARestartTheWorkersHaveTheTimeForThat) {
  Feed(StartOf(1));
  Feed(Stop{RoundId{1}, CauseElsewhere(), false});
  EXPECT_EQ(NextDeadline(state_), now_ + seconds(4));
  Pass(seconds(4));
  EXPECT_TRUE(Last<KillWorkers>());
  EXPECT_THAT(Of<PrintNote>(last_)[0].text, HasSubstr("within 4 s of SIGTERM"));
}

TEST_F(SupervisorTest, TheServiceKnowsWhetherARoundFollows) {
  Feed(StartOf(1));
  Feed(Ended(1, Exited{1}));
  const TimePoint told = now_;
  EXPECT_EQ(NextDeadline(state_), told + seconds(10)) << "the longer time, until it is known";
  now_ += seconds(1);
  Feed(Stop{RoundId{1}, CauseElsewhere(), false});
  EXPECT_EQ(NextDeadline(state_), told + seconds(4));
  EXPECT_FALSE(Last<TerminateWorkers>()) << "once is enough";
  Feed(Stop{RoundId{1}, CauseElsewhere(), true});
  EXPECT_EQ(NextDeadline(state_), told + seconds(10));
}

TEST_F(SupervisorTest, ASignalWhileARoundIsStoppedGivesTheTimeOfTheEnd) {
  Feed(StartOf(1));
  Feed(Stop{RoundId{1}, CauseElsewhere(), false});
  const TimePoint told = now_;
  now_ += seconds(3);
  Feed(SignalReceived{SIGTERM});
  EXPECT_EQ(NextDeadline(state_), told + seconds(10));
}

TEST_F(SupervisorTest, WhatTheAgentKilledIsNoCause) {
  Feed(StartOf(1));
  Feed(Ended(1, Exited{7}));
  Feed(Stopped(0));
  EXPECT_EQ(Reports<WorkerFailed>().size(), 1u);
}

TEST_F(SupervisorTest, WhatDoesNotEndIsKilledAfterTheGrace) {
  Feed(StartOf(4, 3));
  Feed(Ended(1, Exited{7}));
  EXPECT_EQ(NextDeadline(state_), now_ + seconds(10));
  Pass(milliseconds(9999));
  EXPECT_FALSE(Last<KillWorkers>());
  Pass(milliseconds(1));
  EXPECT_TRUE(Last<KillWorkers>());
  Feed(AllGone{});
  EXPECT_EQ(NextDeadline(state_), std::nullopt);
}

TEST_F(SupervisorTest, WhatSigkillDoesNotEndIsNamedAndLeftBehind) {
  Feed(StartOf(1));
  Feed(Ended(1, Exited{7}));
  Feed(FinishOf(false, 7));
  Pass(seconds(10));
  EXPECT_TRUE(Of<End>(all_).empty());
  Pass(kKillTimeout);
  EXPECT_EQ(TheEnd().exit_code, 7);
  EXPECT_TRUE(Last<ReportStuck>());
}

TEST_F(SupervisorTest, AFailureElsewhereStopsTheWorkersAndTheNextRoundStarts) {
  Feed(StartOf(1));
  Feed(Stop{RoundId{1}, CauseElsewhere()});
  ASSERT_EQ(Of<TerminateWorkers>(last_).size(), 1u);
  EXPECT_EQ(Of<TerminateWorkers>(last_)[0].signal, SIGTERM);
  Feed(Stopped(0));
  Feed(Stopped(1));
  EXPECT_THAT(Reports<WorkerFailed>(), IsEmpty());
  Feed(AllGone{});
  ASSERT_EQ(Of<ReportStopped>(last_).size(), 1u);
  EXPECT_EQ(Of<ReportStopped>(last_)[0].round, RoundId{1});
  Feed(StartOf(2, 1));
  ASSERT_TRUE(Last<SpawnRound>());
  ASSERT_EQ(Of<PrintNote>(last_).size(), 1u);
  EXPECT_THAT(Of<PrintNote>(last_)[0].text,
              AllOf(HasSubstr("restart 1 of 3"), HasSubstr("rank 0")));
  EXPECT_EQ(state_.phase, Phase::kRunning);
}

TEST_F(SupervisorTest, StopIsAnsweredOnceAlsoWhenItComesAfterTheWorkersEnd) {
  Feed(StartOf(1));
  Feed(Ended(0, Exited{1}));
  Feed(AllGone{});
  EXPECT_TRUE(Of<ReportStopped>(all_).empty());
  Feed(Stop{RoundId{1}, CauseElsewhere()});
  EXPECT_EQ(Of<ReportStopped>(all_).size(), 1u);
  EXPECT_EQ(state_.phase, Phase::kWaiting);
}

TEST_F(SupervisorTest, ANodeThatSucceededAnswersStopAtOnce) {
  Feed(StartOf(1));
  Feed(AllGone{});
  Feed(Stop{RoundId{1}, CauseElsewhere()});
  EXPECT_TRUE(Last<ReportStopped>());
  EXPECT_EQ(state_.phase, Phase::kWaiting);
}

TEST_F(SupervisorTest, FinishStopsWhatStillRunsAndGivesItsExitCode) {
  Feed(StartOf(1));
  Feed(FinishOf(false, 9));
  EXPECT_TRUE(Last<TerminateWorkers>());
  EXPECT_TRUE(Of<End>(all_).empty());
  Feed(AllGone{});
  EXPECT_EQ(TheEnd().exit_code, 9);
  EXPECT_THAT(TheEnd().text, HasSubstr("rank 0"));
}

TEST_F(SupervisorTest, AWorkerThatCannotBeStartedIsAFailure) {
  Feed(StartOf(1));
  Feed(Ended(0, SpawnFailed{126, "cannot start x"}));
  ASSERT_EQ(Reports<WorkerFailed>().size(), 1u);
  EXPECT_EQ(Reports<WorkerFailed>()[0].failure.kind, FailureKind::kSpawnFailed);
  EXPECT_EQ(Reports<WorkerFailed>()[0].failure.exit_code, 126);
  EXPECT_EQ(Reports<WorkerFailed>()[0].failure.message, "cannot start x");
}

// ---- The service is lost, or refuses

TEST_F(SupervisorTest, ALostServiceStopsTheWorkers) {
  Feed(StartOf(1));
  Feed(SessionEnded{absl::UnavailableError("connection reset")});
  EXPECT_TRUE(Last<TerminateWorkers>());
  Feed(AllGone{});
  EXPECT_EQ(TheEnd().exit_code, 1);
  EXPECT_THAT(TheEnd().text, AllOf(HasSubstr("lost the rendezvous service at a:29500"),
                                   HasSubstr("connection reset")));
}

TEST_F(SupervisorTest, ALostServiceDoesNotHideThisNodesOwnFailure) {
  Feed(StartOf(1));
  Feed(Ended(0, Exited{7}));
  Feed(AllGone{});
  Feed(SessionEnded{absl::UnavailableError("connection reset")});
  EXPECT_EQ(TheEnd().exit_code, 7);
  EXPECT_THAT(TheEnd().text,
              AllOf(HasSubstr("exited with code 7"), HasSubstr("was lost before its verdict")));
}

TEST_F(SupervisorTest, AServiceThatIsNeverReachedIsNamed) {
  Feed(Connecting{"connection refused", seconds(5)});
  const std::string sentence =
      "the rendezvous service at a:29500 was not reached within 5 s: connection refused";
  Feed(SessionEnded{absl::DeadlineExceededError(sentence)});
  EXPECT_EQ(TheEnd().exit_code, 1);
  EXPECT_THAT(TheEnd().text, StartsWith("ddprun: " + sentence + "; check that node 0 is started"));
}

TEST_F(SupervisorTest, ARefusalIsShownAsItIs) {
  Feed(Refused{absl::FailedPreconditionError("node b was started with --nnodes 3")});
  EXPECT_EQ(TheEnd().exit_code, 1);
  EXPECT_EQ(TheEnd().text, "ddprun: node b was started with --nnodes 3\n");
}

// ---- Notes while waiting

TEST_F(SupervisorTest, AQuickStartIsSilent) {
  Feed(Connecting{"connection refused", seconds(5)});
  now_ += kNoticeDelay - milliseconds(1);
  Feed(StartOf(1));
  EXPECT_TRUE(Of<PrintNote>(all_).empty());
  EXPECT_EQ(NextDeadline(state_), std::nullopt);
}

TEST_F(SupervisorTest, ALongWaitIsExplainedAndItsChangesToo) {
  Feed(Waiting{"1 of 2 nodes is there", seconds(5)});
  Pass(kNoticeDelay);
  ASSERT_EQ(Of<PrintNote>(all_).size(), 1u);
  EXPECT_EQ(Of<PrintNote>(all_)[0].text, "1 of 2 nodes is there; 4 s left");
  Feed(Waiting{"1 of 2 nodes is there", seconds(4)});
  EXPECT_EQ(Of<PrintNote>(all_).size(), 1u);
  Feed(Waiting{"something else", seconds(4)});
  EXPECT_EQ(Of<PrintNote>(all_).size(), 2u);
}

// ---- Every phase meets every event: the phase that follows

class SupervisorWalk : public SupervisorTest {
 protected:
  // Drives a fresh supervisor into `phase`.
  void Enter(Phase phase) {
    state_ = {};
    all_.clear();
    switch (phase) {
      case Phase::kWaiting:
        Feed(Waiting{"for node 0", seconds(5)});
        break;
      case Phase::kRunning:
        Feed(StartOf(1));
        break;
      case Phase::kExamining:
        Feed(StartOf(1));
        Feed(Stop{RoundId{1}, HangElsewhere()});
        break;
      case Phase::kSucceeded:
        Feed(StartOf(1));
        Feed(AllGone{});
        break;
      case Phase::kStopping:
        Feed(StartOf(1));
        Feed(Ended(0, Exited{1}));
        break;
      case Phase::kLeaving:
        Feed(StartOf(1));
        Feed(SignalReceived{SIGTERM});
        break;
      case Phase::kEnding:
        Feed(StartOf(1));
        Feed(FinishOf(false, 1));
        break;
      case Phase::kEnded:
        Feed(FinishOf(true, 0));
        break;
    }
    ASSERT_EQ(state_.phase, phase);
  }
};

TEST_F(SupervisorWalk, EveryPhaseMeetsEveryEvent) {
  const Event events[] = {Connecting{"x", seconds(1)},
                          Waiting{"x", seconds(1)},
                          StartOf(2),
                          Stop{RoundId{1}, CauseElsewhere()},
                          FinishOf(false, 3),
                          Refused{absl::InternalError("no")},
                          SessionEnded{absl::UnavailableError("gone")},
                          Ended(1, Exited{5}),
                          AllGone{},
                          SignalReceived{SIGINT},
                          WardenLost{},
                          ControlPipeLost{},
                          DeadlinePassed{},
                          WorkerHung{.local_rank = 1, .pid = 101},
                          Stop{RoundId{1}, HangElsewhere()},
                          StacksRead{},
                          NoticeGiven{seconds(60), "SIGUSR1"},
                          Preemption{.number = 1, .remaining = seconds(60)},
                          LeftBehind{.signal = SIGTERM, .remaining = seconds(1)},
                          HealthChecked{.healthy = false, .reason = "x", .remaining = seconds(1)}};
  constexpr auto W = Phase::kWaiting, R = Phase::kRunning, S = Phase::kSucceeded,
                 T = Phase::kStopping, L = Phase::kLeaving, E = Phase::kEnding, X = Phase::kEnded,
                 M = Phase::kExamining;
  struct Row {
    Phase phase;
    Phase next[20];
  };
  //                 connecting waiting start stop finish refused ended worker gone signal warden
  //                 control pipe deadline hung hang-stop stacks notice preemption left-behind
  //                 health
  const Row rows[] = {{W, {W, W, R, W, X, X, X, W, W, L, L, L, W, W, W, W, W, W, W, W}},
                      {R, {R, R, E, T, E, E, E, T, S, L, L, L, R, T, M, R, R, R, R, R}},
                      {M, {M, M, E, T, E, E, E, T, W, L, L, L, M, T, M, T, M, M, M, M}},
                      {S, {S, S, X, W, X, X, X, S, S, L, L, L, S, S, W, S, S, S, S, S}},
                      {T, {T, T, E, T, E, E, E, T, T, L, L, L, T, T, T, T, T, T, T, T}},
                      {L, {L, L, L, L, E, E, E, L, L, L, L, L, L, L, L, L, L, L, L, L}},
                      {E, {E, E, E, E, E, E, E, E, X, E, E, E, E, E, E, E, E, E, E, E}},
                      {X, {X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X}}};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < std::size(events); ++i) {
      Enter(row.phase);
      const Effects effects = Feed(events[i]);
      EXPECT_EQ(state_.phase, row.next[i])
          << "phase " << static_cast<int>(row.phase) << ", event " << i;
      // The end is the last effect, comes once, and nothing is waited for afterwards.
      EXPECT_EQ(Of<End>(all_).size(), state_.phase == Phase::kEnded ? 1u : 0u) << i;
      if (!Of<End>(effects).empty()) {
        EXPECT_TRUE(std::holds_alternative<End>(effects.back()));
      }
      if (state_.phase == Phase::kEnded) {
        EXPECT_EQ(NextDeadline(state_), std::nullopt);
      }
      // Nothing ends before its workers.
      if (state_.phase == Phase::kEnded) {
        EXPECT_FALSE(state_.workers_live);
      }
      if (row.phase == Phase::kEnded) {
        EXPECT_THAT(effects, IsEmpty());
      }
    }
  }
}

TEST_F(SupervisorTest, AWorkerThatHangsIsReportedAndKilledWhileTheOthersMayEndThemselves) {
  Feed(StartOf(1));
  WorkerHung hung{.local_rank = 1, .pid = 101, .age = seconds(40)};
  hung.hang.step = 17;
  hung.hang.stack = {"  thread 101"};
  Feed(hung);
  ASSERT_EQ(last_.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<SendReport>(last_[0]));
  EXPECT_TRUE(std::holds_alternative<TerminateWorkers>(last_[1]));
  EXPECT_EQ(std::get<KillWorker>(last_[2]).local_rank, 1);
  const Failure failure = Reports<WorkerFailed>()[0].failure;
  EXPECT_EQ(failure.kind, FailureKind::kWorkerHung);
  EXPECT_EQ(failure.rank, 3);
  EXPECT_EQ(failure.host, "b");
  EXPECT_EQ(failure.pid, 101);
  EXPECT_EQ(failure.age, seconds(40));
  EXPECT_EQ(failure.hang, hung.hang);
  Feed(Stopped(1));
  EXPECT_EQ(Reports<WorkerFailed>().size(), 1u) << "its death is no failure of its own";
}

// ---- A round that is stopped because a worker hangs

TEST_F(SupervisorTest, TheStacksAreReadBeforeAHungRoundIsStopped) {
  Feed(StartOf(1));
  Feed(Stop{RoundId{1}, HangElsewhere(), false});
  ASSERT_EQ(last_.size(), 1u);
  EXPECT_EQ(Of<ExamineWorkers>(last_)[0].silent, seconds(40));
  Feed(WorkerHung{.local_rank = 1, .pid = 101});
  EXPECT_EQ(Reports<WorkerFailed>().size(), 1u);
  EXPECT_EQ(Of<TerminateWorkers>(last_).size(), 1u);
  EXPECT_EQ(Of<KillWorker>(last_).size(), 1u);
  EXPECT_EQ(NextDeadline(state_), now_ + seconds(4)) << "another round follows";
  EXPECT_THAT(Feed(StacksRead{}), IsEmpty());
  Feed(AllGone{});
  EXPECT_TRUE(Last<ReportStopped>());
}

TEST_F(SupervisorTest, ANodeWithoutAHungWorkerStopsOnceItHasLooked) {
  Feed(StartOf(1));
  Feed(Stop{RoundId{1}, HangElsewhere(), true});
  EXPECT_FALSE(Last<TerminateWorkers>());
  Feed(StacksRead{});
  EXPECT_TRUE(Last<TerminateWorkers>());
  EXPECT_EQ(state_.stop_cause->kind, FailureKind::kWorkerHung);
}

TEST_F(SupervisorTest, StacksThatAreNotReadInTimeDoNotHoldTheStopUp) {
  Feed(StartOf(1));
  Feed(Stop{RoundId{1}, HangElsewhere(), true});
  EXPECT_EQ(NextDeadline(state_), now_ + kStopHeldMax);
  Pass(kStopHeldMax);
  EXPECT_TRUE(Last<TerminateWorkers>());
}

TEST_F(SupervisorTest, AUserWhoStopsTheRunDoesNotWaitForStacks) {
  Feed(StartOf(1));
  Feed(Stop{RoundId{1}, HangElsewhere(), true});
  Failure stopped;
  stopped.kind = FailureKind::kRunStopped;
  stopped.signal = SIGKILL;
  Feed(Stop{RoundId{1}, stopped, true});
  EXPECT_TRUE(Last<KillWorkers>());
}

// ---- Which failure is the cause

WorkerEnded LostItsPeer(int local_rank) {
  WorkerEnded ended = Ended(local_rank, Exited{1});
  ended.last_lines = {"RuntimeError: Connection closed by peer"};
  return ended;
}

TEST_F(SupervisorTest, AWorkerThatDiedBeforeItsSignalIsReportedIfItMayBeTheCause) {
  Feed(StartOf(1));
  Feed(LostItsPeer(0));
  Feed(Ended(1, Signaled{SIGSEGV}));
  ASSERT_EQ(Reports<WorkerFailed>().size(), 2u);
  EXPECT_EQ(Reports<WorkerFailed>()[1].failure.rank, 3);
  EXPECT_EQ(state_.failure->signal, SIGSEGV);
}

TEST_F(SupervisorTest, WhatCannotBeTheCauseIsNotReported) {
  Feed(StartOf(1));
  Feed(Ended(0, Signaled{SIGSEGV}));
  Feed(LostItsPeer(1));
  EXPECT_EQ(Reports<WorkerFailed>().size(), 1u);
}

TEST_F(SupervisorTest, WhatThisAgentStoppedIsNotReported) {
  Feed(StartOf(1));
  Feed(LostItsPeer(0));
  Feed(Stopped(1));
  EXPECT_EQ(Reports<WorkerFailed>().size(), 1u);
}

// Stop of another node's failure and an own worker's death in one turn of the loop.
TEST_F(SupervisorTest, AWorkerThatDiedBeforeStopCameIsReported) {
  Feed(StartOf(1));
  Feed(Stop{RoundId{1}, CauseElsewhere()});
  Feed(Ended(0, Signaled{SIGSEGV}));
  EXPECT_EQ(Reports<WorkerFailed>().size(), 1u);
}

TEST_F(SupervisorTest, HowAllEndedIsSaidWithNodeStopped) {
  Feed(StartOf(1));
  Feed(Ended(1, Exited{7}));
  Feed(Stop{RoundId{1}, CauseElsewhere()});
  Feed(Stopped(0));
  Feed(AllGone{});
  const auto stopped = Of<ReportStopped>(last_);
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_EQ(stopped[0].ends,
            (std::vector<WorkerEnds>{{EndKind::kStopped, 0, 0, 1}, {EndKind::kExited, 7, 1, 1}}));
}

TEST_F(SupervisorTest, ACauseThatIsCorrectedAfterTheAnswerIsTheOneThatIsTold) {
  Feed(StartOf(1));
  Feed(Stop{RoundId{1}, CauseElsewhere()});
  Feed(Stopped(0));
  Feed(Stopped(1));
  Feed(AllGone{});
  Failure better = CauseElsewhere();
  better.rank = 1;
  EXPECT_THAT(Feed(Stop{RoundId{1}, better}), IsEmpty());
  Feed(StartOf(2, 1));
  const auto notes = Of<PrintNote>(last_);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0].text, HasSubstr("rank 1 (on host a) exited with code 9"));
}

TEST_F(SupervisorTest, WithoutTheServiceTheVerdictIsThisNodes) {
  Feed(StartOf(1));
  Feed(Ended(0, Exited{7}));
  Feed(SessionEnded{absl::UnavailableError("gone")});
  Feed(Stopped(1));
  Feed(AllGone{});
  ASSERT_TRUE(TheEnd().verdict);
  EXPECT_EQ(TheEnd().verdict->exit_code, 7);
  EXPECT_EQ(TheEnd().verdict->cause->rank, 2);
}

}  // namespace
}  // namespace ddprun
