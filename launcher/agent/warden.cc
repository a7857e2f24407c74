// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/warden.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

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

// A pipe into which nothing is ever written: `watched` reaches its end when the guard that holds
// `held` has ended, however it does. Unlike a pidfd it needs nothing of the kernel.
struct LifePipe {
  OwnedFd watched;
  OwnedFd held;
};

// Absent: it cannot be made, which is reported.
std::optional<LifePipe> MakeLifePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) == 0) return LifePipe{OwnedFd(fds[0]), OwnedFd(fds[1])};
  std::fprintf(stderr, "ddprun: cannot watch its own processes: %s\n", ErrnoText(errno).c_str());
  return std::nullopt;
}

int RunAgent(pid_t keeper_pid, OwnedFd warden_life, OwnedFd keeper_life, const AgentBody& agent) {
  setsid();
  // The agent is a subreaper too, for the sweep between rounds and in case the guards are killed:
  // the flag is not inherited.
  BecomeSubreaper();
  if (getppid() != keeper_pid) return 1;  // it has ended already
  return agent({warden_life.Release(), keeper_life.Release()});
}

// Returns a signal of `awaited`, or -1 when the control pipe has ended or the deadline has passed.
// Only the agent reads the control pipe; poll() reports its end without reading.
int WaitForSignal(const sigset_t& awaited, int control_pipe, Clock::time_point deadline) {
  if (control_pipe < 0 && deadline == kNever) return sigwaitinfo(&awaited, nullptr);
  const OwnedFd signals(signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) {
    // No descriptor is left: polls.
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

// Kills the child if it does not act on the end of the control pipe, because it is stopped or
// hangs.
class ControlPipeGuard {
 public:
  ControlPipeGuard(int control_pipe, std::chrono::milliseconds patience)
      : control_pipe_(control_pipe), patience_(patience) {}

  // Waits once, until `deadline` at the latest. Returns a signal of `awaited`, or -1.
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

// Waits for the child's end and forwards signals. Returns its wait status. Absent: `parent` has
// ended, and the child, which detects that itself, has not ended in time.
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

// `child`: the wait status of the guarded process, if it has ended. If it exited by itself, it has
// reported the processes that hang.
void EndAllBelow(const Warden& warden, std::optional<int> child) {
  const bool named = child.has_value() && WIFEXITED(*child);
  const std::chrono::seconds timeout = named ? kLastSweepTimeout : kSweepTimeout;
  if (warden.cgroup != nullptr) warden.cgroup->Kill();
  for (const pid_t pid : KillAllChildren(timeout)) {
    if (!named)
      std::fprintf(stderr, "ddprun: %s\n", ToText(LookAtStuckProcess(pid), timeout).c_str());
  }
  for (const std::string& folder : warden.folders) RemoveTempDir(folder);
  if (warden.cgroup != nullptr) warden.cgroup->Remove();
}

// The exit code for the end of a guarded process, once all of its descendants have ended.
int AnswerFor(const char* name, pid_t pid, int status, const Warden& warden) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int number = WTERMSIG(status);
  const std::string how = absl::StrCat("killed by signal ", number, " (", SignalName(number), ")");
  std::fprintf(stderr, "ddprun: the %s (pid %d) was %s; all of its workers were killed\n", name,
               static_cast<int>(pid), how.c_str());
  if (warden.on_agent_killed) warden.on_agent_killed(how);
  return ExitCodeOfSignal(number);
}

// Before there is a child; the reason has been reported.
int GiveUp(const Warden& warden) {
  for (const std::string& folder : warden.folders) RemoveTempDir(folder);
  return 1;
}

int FailToFork(const char* name, const Warden& warden) {
  std::fprintf(stderr, "ddprun: cannot start the %s: %s; see `ulimit -u`\n", name,
               std::strerror(errno));
  return GiveUp(warden);
}

void TakeName(const std::string& name, absl::Span<char> command_line) {
  prctl(PR_SET_NAME, name.c_str());
  std::fill(command_line.begin(), command_line.end(), '\0');
  const std::size_t size = std::min(name.size() + 1, command_line.size());
  if (size > 0) std::copy_n(name.c_str(), size - 1, command_line.begin());
}

int RunKeeper(pid_t warden_pid, OwnedFd warden_life, const Warden& warden, const AgentBody& agent) {
  // Its own session, like the agent's: a signal to the terminal's foreground group or to the
  // warden's group reaches only the warden, which forwards it once.
  setsid();
  BecomeSubreaper();
  prctl(PR_SET_PDEATHSIG, SIGCHLD);  // wakes Watch(), which checks its parent
  if (getppid() != warden_pid) return 1;
  std::optional<LifePipe> life = MakeLifePipe();
  if (!life.has_value()) return 1;
  const pid_t keeper_pid = getpid();
  const pid_t agent_pid = fork();
  if (agent_pid == 0) {
    life->held.Reset();
    _exit(RunAgent(keeper_pid, std::move(warden_life), std::move(life->watched), agent));
  }
  if (agent_pid < 0) return FailToFork("agent", warden);
  warden_life.Reset();
  life->watched.Reset();
  TakeName("keeper", warden.command_line);
  if (warden.forget) warden.forget();
  const std::optional<int> status =
      Watch(agent_pid, warden_pid, warden.passed_signals,
            ControlPipeGuard(warden.control_pipe, kControlPipeKeeperTimeout));
  EndAllBelow(warden, status);
  // The exit code of a keeper without a warden is not used.
  return status.has_value() ? AnswerFor("agent", agent_pid, *status, warden)
                            : ExitCodeOfSignal(SIGKILL);
}

}  // namespace

int RunUnderWarden(const Warden& warden, const AgentBody& agent) {
  BecomeSubreaper();
  const pid_t warden_pid = getpid();
  std::optional<LifePipe> life = MakeLifePipe();
  if (!life.has_value()) return GiveUp(warden);
  const pid_t keeper_pid = fork();
  if (keeper_pid == 0) {
    life->held.Reset();
    _exit(RunKeeper(warden_pid, std::move(life->watched), warden, agent));
  }
  if (keeper_pid < 0) return FailToFork("keeper", warden);
  life->watched.Reset();
  if (warden.forget) warden.forget();
  // The warden's own parent may end.
  const std::optional<int> status =
      Watch(keeper_pid, std::nullopt, warden.passed_signals,
            ControlPipeGuard(warden.control_pipe, kControlPipeWardenTimeout));
  EndAllBelow(warden, status);
  return AnswerFor("keeper", keeper_pid, *status, warden);
}

}  // namespace ddprun
