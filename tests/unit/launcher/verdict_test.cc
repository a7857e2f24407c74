// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Failure KilledRankOne() {
  Failure failure;
  failure.kind = FailureKind::kWorkerSignaled;
  failure.rank = failure.local_rank = failure.node_rank = 1;
  failure.host = "b";
  failure.pid = 4711;
  failure.signal = SIGKILL;
  failure.age = std::chrono::milliseconds(12300);
  failure.last_lines = {"step 9", "step 10"};
  return failure;
}

Verdict FailedRun(Failure cause, int exit_code, RoundId round = kNoRound) {
  Verdict verdict;
  verdict.cause = std::move(cause);
  verdict.exit_code = exit_code;
  verdict.round = round;
  return verdict;
}

TEST(VerdictTest, SuccessIsQuiet) {
  Verdict verdict;
  verdict.success = true;
  verdict.round = RoundId{1};
  EXPECT_EQ(VerdictText(verdict), "");
}

TEST(VerdictTest, OneScreen) {
  Failure failure = KilledRankOne();
  failure.advice = "look for a killer on b";
  Verdict verdict = FailedRun(failure, 137, RoundId{2});
  verdict.restart_count = 1;
  verdict.restarts_max = 3;
  EXPECT_EQ(VerdictText(verdict),
            "ddprun: run failed: rank 1 (local rank 1 on host b, pid 4711) was killed by SIGKILL "
            "after 12.3 s, round 2\n"
            "  restarts: 1 of 3 used\n"
            "  last lines of rank 1:\n"
            "    step 9\n"
            "    step 10\n"
            "  look for a killer on b\n"
            "  exit code: 137\n");
}

TEST(VerdictTest, WhoWaitsForWhomComesFirst) {
  Failure failure = KilledRankOne();
  failure.places = {{{{0, 0}, {2, 3}}, {Collective{"0", 57, "all_reduce", 4 << 20, "float32"}, {}}},
                    {{{1, 1}}, {std::nullopt, {{"0", 56, "all_reduce"}}}}};
  EXPECT_THAT(VerdictText(FailedRun(failure, 137)),
              HasSubstr("after 12.3 s\n"
                        "  collectives: ranks 0, 2-3 wait in all_reduce 57 (4 MiB float32); rank 1 "
                        "has not begun it: its last was all_reduce 56\n"
                        "  last lines of rank 1:\n"));
}

TEST(VerdictTest, AnOutOfMemoryKillHasItsNumbers) {
  Failure failure = KilledRankOne();
  failure.oom = OomKill{std::int64_t{15} << 29, std::int64_t{8} << 30, true};
  const std::string text = VerdictText(FailedRun(failure, 137, RoundId{1}));
  EXPECT_THAT(text,
              HasSubstr("was killed by the kernel's out-of-memory killer (SIGKILL) at 7.5 GiB "
                        "of its cgroup's limit of 8.0 GiB after 12.3 s"));
}

TEST(VerdictTest, TheOthersAndTheCore) {
  Failure failure = KilledRankOne();
  failure.signal = SIGSEGV;
  failure.core_file = "/work/core.4711";
  Verdict verdict = FailedRun(failure, 139, RoundId{1});
  verdict.outcomes = {{EndKind::kExited, 1, 1, {{3, 3}}, {}},
                      {EndKind::kStopped, 0, 13, {{0, 0}, {4, 15}}, {}}};
  EXPECT_THAT(VerdictText(verdict), HasSubstr("  core on b: /work/core.4711\n"
                                              "  the others:\n"
                                              "    rank 3 exited with code 1\n"
                                              "    ranks 0, 4-15 were stopped by ddprun\n"
                                              "  exit code: 139\n"));
}

TEST(VerdictTest, ATracebackIsShownOnceAndStaysOnTheScreen) {
  Failure failure = KilledRankOne();
  failure.kind = FailureKind::kWorkerExited;
  failure.exit_code = 1;
  failure.message = "ValueError: no";
  failure.traceback = "Traceback (most recent call last):\n  x\nValueError: no\n";
  failure.last_lines = {"[rank1]: Traceback (most recent call last):", "[rank1]:   x",
                        "[rank1]: ValueError: no"};
  EXPECT_THAT(VerdictText(FailedRun(failure, 1)),
              HasSubstr("  what it said:\n    ValueError: no\n  last lines of rank 1:\n"));
  failure.last_lines = {"step 1"};
  EXPECT_THAT(VerdictText(FailedRun(failure, 1)),
              HasSubstr("  what it said:\n    Traceback (most recent call last):\n      x\n"));
  failure.traceback = "Traceback (most recent call last):\n";
  for (int i = 0; i < 200; ++i) failure.traceback += "  frame " + std::to_string(i) + "\n";
  const std::string text = VerdictText(FailedRun(failure, 1));
  EXPECT_THAT(text, HasSubstr("    ... 177 lines, see --verdict-file\n      frame 180\n"));
  EXPECT_THAT(text, HasSubstr("      frame 199\n"));
}

TEST(VerdictTest, WhatTheWorkerSaidKeepsItsLines) {
  Failure failure = KilledRankOne();
  failure.kind = FailureKind::kWorkerExited;
  failure.exit_code = 1;
  failure.message = "RuntimeError: no data\nin /data\n";
  failure.last_lines.clear();
  const std::string text = VerdictText(FailedRun(failure, 1, RoundId{1}));
  EXPECT_THAT(
      text,
      HasSubstr("  what it said:\n    RuntimeError: no data\n    in /data\n  exit code: 1\n"));
}

TEST(VerdictTest, ASentenceThatTheWorkerRecordedAndPrintedIsShownOnce) {
  Failure failure = KilledRankOne();
  failure.kind = FailureKind::kWorkerExited;
  failure.exit_code = 1;
  failure.message = "the loss is not a number at step 3";
  failure.last_lines = {"step 2", "train: the loss is not a number at step 3"};
  EXPECT_THAT(VerdictText(FailedRun(failure, 1)),
              HasSubstr("  what it said:\n    the loss is not a number at step 3\n"
                        "  last lines of rank 1:\n    step 2\n  exit code: 1\n"));
  EXPECT_THAT(
      VerdictText(FailedRun(failure, 1), FailureMessage::kOmit),
      AllOf(Not(HasSubstr("the loss is")), HasSubstr("  last lines of rank 1:\n    step 2\n")));
  failure.last_lines.erase(failure.last_lines.begin());
  EXPECT_THAT(VerdictText(FailedRun(failure, 1)), Not(HasSubstr("last lines")));
}

TEST(VerdictTest, ARunThatNeverStartedNamesItsCauseOnly) {
  Failure failure;
  failure.kind = FailureKind::kJoinTimeout;
  failure.message = "node 1 did not join";
  EXPECT_EQ(VerdictText(FailedRun(failure, 1)),
            "ddprun: run failed: node 1 did not join\n  exit code: 1\n");
}

TEST(VerdictTest, WithoutTheServiceTheNodeSpeaksForItself) {
  const std::string text = LocalFailureText(KilledRankOne(), "the service was lost");
  EXPECT_THAT(text, StartsWith("ddprun: run failed: rank 1"));
  EXPECT_THAT(text, HasSubstr("  the service was lost\n  exit code: 137\n"));
}

TEST(VerdictTest, AFailureIsARecordForWhoeverStartedDdprun) {
  Failure failure;
  failure.kind = FailureKind::kWorkerExited;
  failure.exit_code = 7;
  failure.message = "ValueError: no";
  failure.traceback = "Traceback";
  EXPECT_EQ(RecordOf(failure).message, "ValueError: no");
  EXPECT_EQ(RecordOf(failure).traceback, "Traceback");
  EXPECT_EQ(RecordOf(failure).error_code, 7);
  failure = Failure{.kind = FailureKind::kWorkerSignaled, .rank = 3, .signal = SIGSEGV};
  EXPECT_EQ(RecordOf(failure).error_code, -SIGSEGV);
  EXPECT_EQ(RecordOf(failure).message, ToSentence(failure));
}

}  // namespace
}  // namespace ddprun
