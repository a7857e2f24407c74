// SPDX-License-Identifier: Apache-2.0
#include "launcher/warden.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "launcher/limits.h"
#include "launcher/orphans.h"
#include "launcher/signal_name.h"
#include "launcher/temp_dir.h"
#include "rendezvous/owned_fd.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Clock::time_point kNever = Clock::time_point::max();

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

// A signal of `awaited`, or -1 when the lifeline has ended or the deadline is over. The lifeline is
// the agent's to read; its end can be seen without.
int WaitForSignal(const sigset_t& awaited, int lifeline, Clock::time_point deadline) {
  const OwnedFd signals(signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK));
  pollfd fds[2] = {{.fd = signals.get(), .events = POLLIN, .revents = 0},
                   {.fd = lifeline, .events = POLLRDHUP, .revents = 0}};
  int timeout_ms = -1;
  if (deadline != kNever) {
    const auto remaining =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    timeout_ms = static_cast<int>(std::max<std::int64_t>(0, remaining));
  }
  poll(fds, 2, timeout_ms);
  signalfd_siginfo info;
  if (read(signals.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info)))
    return static_cast<int>(info.ssi_signo);
  return -1;
}

// An agent that does not act on its lifeline's end (it is stopped, it hangs) is killed.
class LifelineWatch {
 public:
  explicit LifelineWatch(int lifeline) : lifeline_(lifeline) {}

  // Waits once. A signal of `awaited`, or none.
  int Wait(const sigset_t& awaited, pid_t agent_pid) {
    if (lifeline_ < 0 && deadline_ == kNever) return sigwaitinfo(&awaited, nullptr);
    const int number = WaitForSignal(awaited, lifeline_, deadline_);
    if (number >= 0) return number;
    if (Clock::now() >= deadline_) {
      kill(agent_pid, SIGKILL);
      deadline_ = kNever;
    } else if (lifeline_ >= 0 && HasEnded()) {
      deadline_ = Clock::now() + kLifelineWardenTimeout;
      lifeline_ = -1;
    }
    return -1;
  }

 private:
  bool HasEnded() const {
    pollfd fd{.fd = lifeline_, .events = POLLRDHUP, .revents = 0};
    return poll(&fd, 1, 0) == 1;
  }

  int lifeline_;
  Clock::time_point deadline_ = kNever;
};

// Waits for the agent's end and passes signals on. Its wait status.
int WatchAgent(pid_t agent_pid, const Warden& warden) {
  sigset_t awaited = warden.end_signals;
  sigaddset(&awaited, SIGCHLD);
  LifelineWatch lifeline(warden.lifeline);
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid == agent_pid) return status;
    if (pid > 0) continue;
    const int number = lifeline.Wait(awaited, agent_pid);
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
