// SPDX-License-Identifier: Apache-2.0
#include "launcher/verdict.h"

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
  Verdict verdict = FailedRun(KilledRankOne(), 137, RoundId{2});
  verdict.restart_count = 1;
  verdict.restarts_max = 3;
  EXPECT_EQ(VerdictText(verdict),
            "ddprun: run failed: rank 1 (local rank 1 on host b, pid 4711) was killed by SIGKILL "
            "after 12.3 s, round 2\n"
            "  restarts: 1 of 3 used\n"
            "  last lines of rank 1:\n"
            "    step 9\n"
            "    step 10\n"
            "  ddprun did not send this SIGKILL: if no person did, look for the kernel's "
            "out-of-memory killer with "
            "`dmesg` on b\n"
            "  exit code: 137\n");
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
  EXPECT_THAT(text, Not(HasSubstr("dmesg")));
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

}  // namespace
}  // namespace ddprun
