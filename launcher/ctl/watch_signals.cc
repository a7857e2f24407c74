// SPDX-License-Identifier: Apache-2.0
#include "launcher/ctl/watch_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

namespace ddprun {

WatchSignals::WatchSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP})
    sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  fd_ = OwnedFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::optional<WatchSignals::Action> WatchSignals::Take() {
  signalfd_siginfo info;
  if (read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  if (info.ssi_signo == SIGWINCH) return Action::kResize;
  return info.ssi_signo == SIGTSTP ? Action::kSuspend : Action::kEnd;
}

}  // namespace ddprun
