// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/likely_cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;

Failure KilledBy(int signal) {
  Failure failure;
  failure.kind = FailureKind::kWorkerSignaled;
  failure.host = "b";
  failure.signal = signal;
  return failure;
}

// A worker that exits with 1.
Failure Saying(const std::string& last_line) {
  Failure failure;
  failure.kind = FailureKind::kWorkerExited;
  failure.exit_code = 1;
  failure.last_lines = {"step 1", last_line};
  return failure;
}

EndEvidence WithShm(std::int64_t free) {
  EndEvidence evidence;
  evidence.shm = {64 * kMiB, free, true};
  return evidence;
}

// ---- SIGKILL: the out-of-memory killer, the limit of CPU time, or a person

TEST(LikelyCauseTest, AKillByTheLimitOfCpuTimeIsNoOutOfMemoryKill) {
  EndEvidence evidence;
  evidence.cpu_seconds = 3599.5;
  evidence.cpu_seconds_limit = 3600;
  EXPECT_EQ(LikelyCause(KilledBy(SIGKILL), evidence),
            "it had used 3600 s of CPU time, and `ulimit -t` is 3600: raise that limit");
  evidence.cpu_seconds = 20;
  EXPECT_THAT(LikelyCause(KilledBy(SIGKILL), evidence), HasSubstr("with `dmesg` on b"));
  evidence.cpu_seconds_limit.reset();
  EXPECT_THAT(LikelyCause(KilledBy(SIGKILL), evidence), HasSubstr("with `dmesg` on b"));
}

TEST(LikelyCauseTest, AnOutOfMemoryKillThatWasFoundIsSaid) {
  Failure failure = KilledBy(SIGKILL);
  failure.oom = OomKill{1, 1, true};
  EXPECT_THAT(LikelyCause(failure, {}), HasSubstr("give the job more memory"));
  failure.oom->of_cgroup = false;
  EXPECT_THAT(LikelyCause(failure, {}), HasSubstr("the machine has no more memory"));
}

TEST(LikelyCauseTest, SignalsOfOtherLimits) {
  EXPECT_THAT(LikelyCause(KilledBy(SIGXCPU), {}), HasSubstr("`ulimit -t`"));
  EndEvidence evidence;
  evidence.file_limit = 5 * kMiB;
  EXPECT_THAT(LikelyCause(KilledBy(SIGXFSZ), evidence), HasSubstr("`ulimit -f` (5 MiB)"));
  EXPECT_EQ(LikelyCause(KilledBy(SIGSEGV), {}), "");
}

// ---- SIGBUS: no more shared memory, or a mapped file that became shorter

TEST(LikelyCauseTest, ABusErrorWithAFullShm) {
  EXPECT_THAT(LikelyCause(KilledBy(SIGBUS), WithShm(0)),
              AllOf(HasSubstr("/dev/shm (64 MiB) is full"), HasSubstr("--shm-size")));
  EXPECT_THAT(LikelyCause(KilledBy(SIGBUS), WithShm(60 * kMiB)), HasSubstr("cut short"));
  EXPECT_THAT(
      LikelyCause(Saying("DataLoader worker (pid 7) is killed by signal: Bus error."), WithShm(0)),
      HasSubstr("is full"));
}

TEST(LikelyCauseTest, PythonCanSayWhereItWas) {
  EndEvidence evidence;
  EXPECT_EQ(LikelyCause(KilledBy(SIGSEGV), evidence), "");
  evidence.is_python = true;
  EXPECT_THAT(LikelyCause(KilledBy(SIGSEGV), evidence), HasSubstr("PYTHONFAULTHANDLER=1"));
  EXPECT_EQ(LikelyCause(KilledBy(SIGTERM), evidence), "");
  Failure said = KilledBy(SIGSEGV);
  said.last_lines = {"Fatal Python error: Segmentation fault"};
  EXPECT_EQ(LikelyCause(said, evidence), "");
}

// ---- ENOSPC, EDQUOT

TEST(LikelyCauseTest, WhichFileSystemIsFull) {
  const Failure failure = Saying("OSError: [Errno 28] No space left on device");
  EXPECT_THAT(LikelyCause(failure, WithShm(0)), HasSubstr("/dev/shm"));
  EndEvidence evidence = WithShm(64 * kMiB);
  evidence.tmp_folder = "/scratch/tmp";
  evidence.tmp = {1000 * kMiB, 9 * kMiB, true};
  EXPECT_THAT(LikelyCause(failure, evidence), HasSubstr("/scratch/tmp is full: remove"));
  evidence.tmp = {1000 * kMiB, 500 * kMiB, false};
  EXPECT_THAT(LikelyCause(failure, evidence), HasSubstr("/scratch/tmp is full (no more inodes)"));
  evidence.tmp->has_inodes = true;
  EXPECT_THAT(LikelyCause(failure, evidence), HasSubstr("`df -h` and `df -i`"));
  EXPECT_THAT(LikelyCause(Saying("OSError: [Errno 122] Disk quota exceeded: 'a'"), evidence),
              HasSubstr("`quota -s`"));
}

// ---- ENOMEM: a limit of address space, or overcommitment

TEST(LikelyCauseTest, NoMemoryWithoutAKiller) {
  const Failure failure = Saying("terminate called after throwing an instance of 'std::bad_alloc'");
  EXPECT_EQ(LikelyCause(failure, {}), "");
  EndEvidence evidence;
  evidence.promises_no_more_memory = true;
  EXPECT_THAT(LikelyCause(failure, evidence), HasSubstr("vm.overcommit_memory is 2"));
  evidence.memory_limit = 500 * kMiB;
  EXPECT_THAT(LikelyCause(failure, evidence), HasSubstr("`ulimit -v` is 500 MiB"));
  Failure aborted = KilledBy(SIGABRT);
  aborted.last_lines = failure.last_lines;
  EXPECT_THAT(LikelyCause(aborted, evidence), HasSubstr("`ulimit -v` is 500 MiB"));
}

// ---- EMFILE, EAGAIN

TEST(LikelyCauseTest, NoMoreDescriptorsOrThreads) {
  EXPECT_THAT(LikelyCause(Saying("OSError: [Errno 24] Too many open files"), {}),
              HasSubstr("`ulimit -n`"));
  const Failure threads = Saying("RuntimeError: can't start new thread");
  EXPECT_EQ(LikelyCause(threads, {}), "");
  EndEvidence evidence;
  evidence.processes_max = 100;
  EXPECT_THAT(LikelyCause(threads, evidence), HasSubstr("`ulimit -u` is 100"));
}

TEST(LikelyCauseTest, WhatAWorkerSaysIsSoughtInAllItsWords) {
  Failure failure = Saying("bye");
  failure.message = "OSError: [Errno 122] Disk quota exceeded";
  EXPECT_THAT(LikelyCause(failure, {}), HasSubstr("quota"));
  failure.message = "KeyError";
  EXPECT_EQ(LikelyCause(failure, {}), "");
  failure.kind = FailureKind::kNodeLost;
  failure.message = "Disk quota exceeded";
  EXPECT_EQ(LikelyCause(failure, {}), "");
}

}  // namespace
}  // namespace ddprun
