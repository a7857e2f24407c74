// SPDX-License-Identifier: Apache-2.0
#include "launcher/warden.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "launcher/limits.h"
#include "launcher/orphans.h"
#include "launcher/temp_dir.h"
#include "rendezvous/signal_name.h"

namespace ddprun {
namespace {

int RunAgent(pid_t warden_pid, const std::function<int(int)>& agent) {
  // A session of its own: what a terminal sends to its foreground group reaches the warden, and
  // comes from there once.
  setsid();
  // So are the agent's own orphans, for the sweep between rounds and for the case that the warden
  // is killed; the flag is not inherited.
  BecomeSubreaper();
  const int warden_pidfd = static_cast<int>(syscall(SYS_pidfd_open, warden_pid, 0u));
  if (getppid() != warden_pid || warden_pidfd < 0) return 1;  // it is gone already
  return agent(warden_pidfd);
}

// Waits for the agent's end and passes signals on. Its wait status.
int WatchAgent(pid_t agent_pid, const Warden& warden) {
  sigset_t awaited = warden.end_signals;
  sigaddset(&awaited, SIGCHLD);
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid == agent_pid) return status;
    if (pid > 0) continue;
    const int number = sigwaitinfo(&awaited, nullptr);
    if (number > 0 && number != SIGCHLD) kill(agent_pid, number);
  }
}

}  // namespace

int RunUnderWarden(const Warden& warden, const std::function<int(int warden_pidfd)>& agent) {
  BecomeSubreaper();
  const pid_t warden_pid = getpid();
  const pid_t agent_pid = fork();
  if (agent_pid == 0) _exit(RunAgent(warden_pid, agent));
  if (agent_pid < 0) {
    std::fprintf(stderr, "ddprun: cannot start the agent: %s; see `ulimit -u`\n",
                 std::strerror(errno));
    RemoveTempDir(warden.temp_dir);
    return 1;
  }
  if (warden.forget) warden.forget();
  const int status = WatchAgent(agent_pid, warden);
  for (const pid_t pid : KillAllChildren(kSweepTimeout)) {
    std::fprintf(stderr,
                 "ddprun: process %d does not end after SIGKILL: it hangs in the kernel and is "
                 "left behind\n",
                 static_cast<int>(pid));
  }
  RemoveTempDir(warden.temp_dir);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int number = WTERMSIG(status);
  const std::string how =
      "killed by signal " + std::to_string(number) + " (" + SignalName(number) + ")";
  std::fprintf(stderr, "ddprun: the agent (pid %d) was %s; all its workers were ended\n",
               static_cast<int>(agent_pid), how.c_str());
  if (warden.on_agent_killed) warden.on_agent_killed(how);
  return 128 + number;
}

}  // namespace ddprun
