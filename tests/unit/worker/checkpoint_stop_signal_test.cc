// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ddprun {
namespace {

// How a process ends that does this.
template <typename Body>
int StatusOf(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(StopSignalTest, TheFirstOneAsksAndALaterOneEnds_RealTime) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    EXPECT_EQ(StatusOf([signal] {
                const StopSignal stop;
                if (StopSignal::Received() != 0) _exit(1);
                raise(signal);
                if (StopSignal::Received() != signal) _exit(2);
              }),
              0);
    const int status = StatusOf([signal] {
      const StopSignal stop;
      raise(signal);
      StopSignal::Acknowledge();
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (std::chrono::steady_clock::now() < end) {
        usleep(10'000);
        raise(signal);
      }
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
  }
}

// From Slurm and from the agent, or from a terminal and the agent.
TEST(StopSignalTest, TheSameOneFromTwoSidesAsksOnce) {
  EXPECT_EQ(StatusOf([] {
              const StopSignal stop;
              raise(SIGTERM);
              raise(SIGTERM);
              raise(SIGINT);
              if (StopSignal::Received() != SIGTERM) _exit(1);
            }),
            0);
}

TEST(StopSignalTest, AfterwardsTheyDoWhatTheyDidBefore) {
  const int status = StatusOf([] {
    { const StopSignal stop; }
    raise(SIGTERM);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

TEST(StopSignalTest, WhoHasHeardItIsNotEnded) {
  EXPECT_EQ(StatusOf([] {
              const StopSignal stop;
              raise(SIGTERM);
              StopSignal::Acknowledge();
              if (alarm(0) != 0) _exit(1);
            }),
            0);
}

// A rank whose peers told it to save, and to which the signal comes while it does so.
TEST(StopSignalTest, AFirstOneThatComesWhenItIsHeardIsNotTimed) {
  EXPECT_EQ(StatusOf([] {
              const StopSignal stop;
              StopSignal::Acknowledge();
              raise(SIGTERM);
              StopSignal::Progress(StopSignal::kPatienceMin);
              if (alarm(0) != 0 || StopSignal::Received() != SIGTERM) _exit(1);
            }),
            0);
}

TEST(StopSignalTest, ProgressGivesItTimeAgain) {
  EXPECT_EQ(StatusOf([] {
              const StopSignal stop;
              StopSignal::Progress(StopSignal::kPatienceMax);
              if (alarm(0) != 0) _exit(1);  // none has come
              raise(SIGTERM);
              if (alarm(1) < 20) _exit(2);
              StopSignal::Progress(StopSignal::kPatienceMax);
              if (alarm(0) < 20) _exit(3);
            }),
            0);
}

TEST(StopSignalTest, AnIgnoredHangUpStaysIgnored) {
  EXPECT_EQ(StatusOf([] {
              signal(SIGHUP, SIG_IGN);
              const StopSignal stop;
              raise(SIGHUP);
              if (StopSignal::Received() != 0) _exit(1);
            }),
            0);
}

TEST(StopSignalTest, WhoDoesNotHearItIsEnded_RealTime) {
  const int status = StatusOf([] {
    const StopSignal stop;
    StopSignal::Progress(std::chrono::milliseconds(1));
    raise(SIGTERM);
    for (;;) pause();
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM) << status;
}

}  // namespace
}  // namespace ddprun
