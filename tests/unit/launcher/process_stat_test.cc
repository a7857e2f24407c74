// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/process_stat.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <limits>

#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

TEST(ProcessStatTest, ResidentMemoryIsInBytes) {
  EXPECT_GT(ResidentBytesOf(getpid()), 1 << 20);
  EXPECT_EQ(ResidentBytesOf(std::numeric_limits<pid_t>::max()), 0);
}

TEST(ProcessExitingTest, TheFlagsSayIt) {
  EXPECT_FALSE(SaysEnding("7 (python3) S 1 7 7 0 -1 4194304 100 0 0 0 1 2"));
  EXPECT_TRUE(SaysEnding("7 (python3) R 1 7 7 0 -1 4194308 100 0 0 0 1 2")) << "its files go";
  EXPECT_TRUE(SaysEnding("7 (python3) D 1 7 7 0 -1 4194816 100 0 0 0 1 2"))
      << "its core is written";
  EXPECT_TRUE(SaysEnding("7 (a) S 0 (b) Z 1 7 7 0 -1 4 100")) << "a name may have anything in it";
}

TEST(CpuSecondsTest, OfOneThatHasEndedToo) {
  const pid_t child = fork();
  if (child == 0) {
    while (clock() < CLOCKS_PER_SEC / 10) continue;
    _exit(0);
  }
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_GE(CpuSecondsOf(child), 0.08);
  EXPECT_LT(CpuSecondsOf(child), 1);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(CpuSecondsOf(child), 0);
}

TEST(ProcessExitingTest, WhatIsNoSuchTextSaysNothing) {
  for (const char* text :
       {"", "7", "7 (python3) ", "7 (python3) S 1 7 7 0 -1", "7 (x) S 1 7 7 0 -1 many 1"})
    EXPECT_FALSE(SaysEnding(text)) << text;
}

TEST(HandledSignalTest, TheMaskSaysIt) {
  const char* status = "Name:\tpython3\nSigIgn:\t0000000000000200\nSigCgt:\t0000000000004200\n";
  EXPECT_TRUE(SaysHandled(status, SIGUSR1));
  EXPECT_TRUE(SaysHandled(status, SIGTERM));
  EXPECT_FALSE(SaysHandled(status, SIGUSR2));
  EXPECT_TRUE(SaysHandled("SigCgt:\t8000000000000000\n", 64));
  for (const char* text : {"", "SigCgt:", "SigCgt:\tmany", "SigBlk:\tffffffffffffffff"})
    EXPECT_FALSE(SaysHandled(text, SIGUSR1)) << text;
}

TEST(HandledSignalTest, AHandlerIsSeenOnceItIsThere) {
  signal(SIGUSR2, SIG_DFL);
  EXPECT_FALSE(HandlesSignal(getpid(), SIGUSR2));
  signal(SIGUSR2, [](int) {});
  EXPECT_TRUE(HandlesSignal(getpid(), SIGUSR2));
  signal(SIGUSR2, SIG_IGN);
  EXPECT_FALSE(HandlesSignal(getpid(), SIGUSR2));
  signal(SIGUSR2, SIG_DFL);
  EXPECT_FALSE(HandlesSignal(0, SIGUSR2));
}

TEST(ProcessExitingTest, OneThatLivesAndOneThatIsDead) {
  EXPECT_FALSE(IsEnding(getpid()));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  const OwnedFd ended(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  pollfd dead{.fd = ended.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&dead, 1, 30'000), 1);
  EXPECT_TRUE(IsEnding(child)) << "nobody has taken its end yet";
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(IsEnding(child));
}

}  // namespace
}  // namespace ddprun
