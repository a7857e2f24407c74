// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/warden.h"

#include <poll.h>
#include <sys/prctl.h>
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
#include <optional>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/base/temp_dir.h"
#include "launcher/processes/orphans.h"
#include "launcher/processes/process_stat.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/owned_fd.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Clock::time_point kNever = Clock::time_point::max();
using AgentBody = std::function<int(std::vector<int>)>;

// -1: it is gone already, which needs no words, or there is no descriptor left, which does.
int PidfdOpen(pid_t pid) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0u));
  if (fd < 0 && IsOutOfDescriptors(errno)) {
    std::fprintf(stderr, "ddprun: cannot watch its own processes: %s\n", ErrnoText(errno).c_str());
  }
  return fd;
}

int RunAgent(pid_t keeper_pid, int warden_pidfd, const AgentBody& agent) {
  setsid();
  // So are the agent's own orphans, for the sweep between rounds and for the case that the guards
  // are killed; the flag is not inherited.
  BecomeSubreaper();
  const int keeper_pidfd = PidfdOpen(keeper_pid);
  if (getppid() != keeper_pid || keeper_pidfd < 0) return 1;  // it is gone already
  return agent({warden_pidfd, keeper_pidfd});
}

// A signal of `awaited`, or -1 when the control pipe has ended or the deadline is over. The control
// pipe is the agent's to read; its end can be seen without.
int WaitForSignal(const sigset_t& awaited, int control_pipe, Clock::time_point deadline) {
  if (control_pipe < 0 && deadline == kNever) return sigwaitinfo(&awaited, nullptr);
  const OwnedFd signals(signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) {
    // No descriptor is left: looks from time to time.
    constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 50'000'000};
    return sigtimedwait(&awaited, nullptr, &kPause);
  }
  pollfd fds[2] = {{.fd = signals.get(), .events = POLLIN, .revents = 0},
                   {.fd = control_pipe, .events = POLLRDHUP, .revents = 0}};
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

// The end of a control pipe, as a guard sees it: a child that does not act on it (it is stopped, it
// hangs) is killed.
class ControlPipeGuard {
 public:
  ControlPipeGuard(int control_pipe, std::chrono::milliseconds patience)
      : control_pipe_(control_pipe), patience_(patience) {}

  // Waits once, and not beyond `deadline`. A signal of `awaited`, or -1.
  int Wait(const sigset_t& awaited, pid_t child, Clock::time_point deadline) {
    const int number = WaitForSignal(awaited, control_pipe_, std::min(deadline, deadline_));
    if (number >= 0) return number;
    if (Clock::now() >= deadline_) {
      kill(child, SIGKILL);
      deadline_ = kNever;
    } else if (control_pipe_ >= 0 && HasEnded()) {
      deadline_ = Clock::now() + patience_;
      control_pipe_ = -1;
    }
    return -1;
  }

 private:
  bool HasEnded() const {
    pollfd fd{.fd = control_pipe_, .events = POLLRDHUP, .revents = 0};
    return poll(&fd, 1, 0) == 1;
  }

  int control_pipe_;
  const std::chrono::milliseconds patience_;
  Clock::time_point deadline_ = kNever;
};

// Waits for the child's end and passes signals on. Its wait status. Absent: the parent, if one is
// to be looked at, is gone, and the child, which notices that by itself, has not ended in time.
std::optional<int> Watch(pid_t child, std::optional<pid_t> parent, const sigset_t& passed,
                         ControlPipeGuard control_pipe) {
  sigset_t awaited = passed;
  sigaddset(&awaited, SIGCHLD);
  Clock::time_point deadline = kNever;
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid == child) return status;
    if (pid > 0) continue;
    if (deadline == kNever && parent.has_value() && getppid() != *parent)
      deadline = Clock::now() + kGuardTimeout;
    if (Clock::now() >= deadline) return std::nullopt;
    const int number = control_pipe.Wait(awaited, child, deadline);
    if (number > 0 && number != SIGCHLD) kill(child, number);
  }
}

// `child`: the wait status of the process that was guarded, if it has ended. If it did so by itself
// it has named what hangs.
void EndAllBelow(const Warden& warden, std::optional<int> child) {
  const bool named = child.has_value() && WIFEXITED(*child);
  const std::chrono::seconds timeout = named ? kLastSweepTimeout : kSweepTimeout;
  if (warden.cgroup != nullptr) warden.cgroup->Kill();
  for (const pid_t pid : KillAllChildren(timeout)) {
    if (!named)
      std::fprintf(stderr, "ddprun: %s\n", ToText(LookAtStuckProcess(pid), timeout).c_str());
  }
  RemoveTempDir(warden.temp_dir);
  if (warden.cgroup != nullptr) warden.cgroup->Remove();
}

// The exit code for a guarded process's end, after all below it has been ended.
int AnswerFor(const char* name, pid_t pid, int status, const Warden& warden) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int number = WTERMSIG(status);
  const std::string how = absl::StrCat("killed by signal ", number, " (", SignalName(number), ")");
  std::fprintf(stderr, "ddprun: the %s (pid %d) was %s; all its workers were ended\n", name,
               static_cast<int>(pid), how.c_str());
  if (warden.on_agent_killed) warden.on_agent_killed(how);
  return 128 + number;
}

int FailToFork(const char* name, const Warden& warden) {
  std::fprintf(stderr, "ddprun: cannot start the %s: %s; see `ulimit -u`\n", name,
               std::strerror(errno));
  RemoveTempDir(warden.temp_dir);
  return 1;
}

void TakeName(const std::string& name, absl::Span<char> command_line) {
  prctl(PR_SET_NAME, name.c_str());
  std::fill(command_line.begin(), command_line.end(), '\0');
  const std::size_t size = std::min(name.size() + 1, command_line.size());
  if (size > 0) std::copy_n(name.c_str(), size - 1, command_line.begin());
}

int RunKeeper(pid_t warden_pid, const Warden& warden, const AgentBody& agent) {
  // A session of its own, as the agent has: what a terminal sends to its foreground group, or
  // someone to the warden's group, reaches the warden, and comes from there once.
  setsid();
  BecomeSubreaper();
  prctl(PR_SET_PDEATHSIG, SIGCHLD);  // wakes Watch(), which checks its parent
  const int warden_pidfd = PidfdOpen(warden_pid);
  if (getppid() != warden_pid || warden_pidfd < 0) return 1;
  const pid_t keeper_pid = getpid();
  const pid_t agent_pid = fork();
  if (agent_pid == 0) _exit(RunAgent(keeper_pid, warden_pidfd, agent));
  if (agent_pid < 0) return FailToFork("agent", warden);
  TakeName("keeper", warden.command_line);
  if (warden.forget) warden.forget();
  const std::optional<int> status =
      Watch(agent_pid, warden_pid, warden.passed_signals,
            ControlPipeGuard(warden.control_pipe, kControlPipeKeeperTimeout));
  EndAllBelow(warden, status);
  // The exit code of a keeper without a warden is not used.
  return status.has_value() ? AnswerFor("agent", agent_pid, *status, warden) : 128 + SIGKILL;
}

}  // namespace

int RunUnderWarden(const Warden& warden, const AgentBody& agent) {
  BecomeSubreaper();
  const pid_t warden_pid = getpid();
  const pid_t keeper_pid = fork();
  if (keeper_pid == 0) _exit(RunKeeper(warden_pid, warden, agent));
  if (keeper_pid < 0) return FailToFork("keeper", warden);
  if (warden.forget) warden.forget();
  // The warden's own parent may end.
  const std::optional<int> status =
      Watch(keeper_pid, std::nullopt, warden.passed_signals,
            ControlPipeGuard(warden.control_pipe, kControlPipeWardenTimeout));
  EndAllBelow(warden, status);
  return AnswerFor("keeper", keeper_pid, *status, warden);
}

}  // namespace ddprun
