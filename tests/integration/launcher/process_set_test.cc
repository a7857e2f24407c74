// SPDX-License-Identifier: Apache-2.0
// Processes that end before they are watched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "launcher/processes/spawn.h"

namespace ddprun {
namespace {

SpawnRequest Shell(const char* text) {
  SpawnRequest request;
  request.path = "/bin/sh";
  request.argv = {"sh", "-c", text};
  sigemptyset(&request.signal_mask);
  return request;
}

TEST(ProcessSetTest, OneThatEndedBeforeItWasAdoptedIsReaped) {
  ProcessSet processes;
  Spawned spawned = SpawnProcess(Shell("exit 3"), processes.file_limit());
  ASSERT_GT(spawned.pid, 0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(spawned.pid), &info, WEXITED | WNOWAIT), 0);
  processes.Adopt(0, std::move(spawned));
  EXPECT_TRUE(processes.IsLive(0));
  EXPECT_TRUE(processes.ReapIfEnded(0, /*spares_group=*/false));
  EXPECT_EQ(std::get<Exited>(*processes.outcome(0)).code, 3);
}

// A spare that was given up is killed and reaped with the orphans; its spawner may return it later.
TEST(ProcessSetTest, OneThatWasReapedAsAnOrphanIsNotWaitedFor) {
  ProcessSet processes;
  Spawned spawned = SpawnProcess(Shell("sleep 100"), processes.file_limit());
  ASSERT_GT(spawned.pid, 0);
  kill(spawned.pid, SIGKILL);
  ASSERT_EQ(waitpid(spawned.pid, nullptr, 0), spawned.pid);
  processes.Adopt(0, std::move(spawned));
  EXPECT_FALSE(processes.IsLive(0));
  EXPECT_EQ(processes.pidfd(0), -1);
  EXPECT_EQ(std::get<Signaled>(*processes.outcome(0)).signal, SIGKILL);
}

}  // namespace
}  // namespace ddprun
