// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/session_types.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace ddprun {
namespace {

Failure OfWorker(FailureKind kind) {
  Failure failure;
  failure.kind = kind;
  failure.rank = 3;
  failure.local_rank = 1;
  failure.node_rank = 1;
  failure.host = "b";
  failure.pid = 4711;
  failure.age = std::chrono::milliseconds(12'340);
  return failure;
}

TEST(FailureTest, ExitCodesFollowTheShell) {
  Failure failure = OfWorker(FailureKind::kWorkerExited);
  failure.exit_code = 7;
  EXPECT_EQ(ToExitCode(failure), 7);
  failure.kind = FailureKind::kSpawnFailed;
  failure.exit_code = 127;
  EXPECT_EQ(ToExitCode(failure), 127);
  failure.signal = SIGKILL;
  failure.kind = FailureKind::kWorkerSignaled;
  EXPECT_EQ(ToExitCode(failure), 137);
  failure.kind = FailureKind::kNodeInterrupted;
  EXPECT_EQ(ToExitCode(failure), 137);
  failure.kind = FailureKind::kNodeLost;
  EXPECT_EQ(ToExitCode(failure), 1);
  failure.kind = FailureKind::kJoinTimeout;
  EXPECT_EQ(ToExitCode(failure), 1);
}

TEST(FailureTest, NoFailureHasExitCodeZero) {
  for (const FailureKind kind :
       {FailureKind::kWorkerExited, FailureKind::kWorkerSignaled, FailureKind::kSpawnFailed,
        FailureKind::kNodeLost, FailureKind::kNodeInterrupted, FailureKind::kJoinTimeout,
        FailureKind::kWorkerEndedEarly}) {
    Failure failure;
    failure.kind = kind;
    EXPECT_EQ(ToExitCode(failure), 1);
    EXPECT_NE(ToSentence(failure), "");
  }
}

TEST(FailureTest, AHungWorkerSaysWhereItIsAndWhereTheOthersWait) {
  Failure failure = OfWorker(FailureKind::kWorkerHung);
  EXPECT_EQ(ToExitCode(failure), 124) << "timeout(1)'s";
  failure.hang = Hang{.silent = std::chrono::milliseconds(30'020)};
  const std::string who = "rank 3 (local rank 1 on host b, pid 4711)";
  EXPECT_EQ(ToSentence(failure), who + " made no progress for 30.0 s");
  failure.hang->section = "data";
  EXPECT_EQ(ToSentence(failure), who + " made no progress for 30.0 s: it is in data");
  failure.hang->step = 17;
  failure.hang->others_step = 17;
  EXPECT_EQ(ToSentence(failure), who + " made no progress for 30.0 s: it is in step 17 (data)");
  failure.hang->others_step = 18;
  EXPECT_EQ(ToSentence(failure), who +
                                     " made no progress for 30.0 s: it is in step 17 (data), "
                                     "others wait in step 18");
  failure.hang = Hang{.kind = HangKind::kNoOutput, .silent = std::chrono::seconds(5)};
  EXPECT_EQ(ToSentence(failure), who + " had no output for 5.0 s");
}

TEST(FailureTest, SentencesNameTheSubjectAndTheFact) {
  Failure failure = OfWorker(FailureKind::kWorkerSignaled);
  failure.signal = SIGKILL;
  EXPECT_EQ(ToSentence(failure),
            "rank 3 (local rank 1 on host b, pid 4711) was killed by SIGKILL after 12.3 s");
  failure = OfWorker(FailureKind::kWorkerExited);
  failure.exit_code = 2;
  EXPECT_EQ(ToSentence(failure),
            "rank 3 (local rank 1 on host b, pid 4711) exited with code 2 after 12.3 s");
  failure = OfWorker(FailureKind::kSpawnFailed);
  failure.pid = 0;
  failure.message = "no such file: ./train";
  EXPECT_EQ(ToSentence(failure),
            "rank 3 (local rank 1 on host b) could not be started: no such file: ./train");
  Failure node;
  node.kind = FailureKind::kNodeLost;
  node.host = "b";
  node.node_rank = 1;
  node.message = "its connection ended";
  EXPECT_EQ(ToSentence(node), "node b (node rank 1) was lost: its connection ended");
  node.kind = FailureKind::kNodeInterrupted;
  node.signal = SIGTERM;
  EXPECT_EQ(ToSentence(node), "node b (node rank 1) was interrupted by SIGTERM");
  node.signal = 0;
  EXPECT_EQ(ToSentence(node), "node b (node rank 1) left the run: its connection ended");
}

TEST(FailureTest, UnknownSignalsHaveANumber) {
  Failure failure;
  failure.kind = FailureKind::kWorkerSignaled;
  failure.signal = SIGRTMIN + 3;
  EXPECT_EQ(ToSentence(failure), "a worker was killed by signal " + std::to_string(SIGRTMIN + 3));
}

}  // namespace
}  // namespace ddprun
