// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/signals.h"

namespace ddprun {

sigset_t NotIgnored(const std::vector<int>& numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) {
    struct sigaction action {};
    // A blocked signal is queued even where it is ignored, so it must be left out here.
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN)
      sigaddset(&set, number);
  }
  return set;
}

sigset_t WithOtherEndSignals(const sigset_t& named, const sigset_t& taken) {
  std::vector<int> numbers = {SIGHUP,  SIGINT,    SIGQUIT, SIGTERM, SIGUSR1,   SIGUSR2, SIGALRM,
                              SIGPROF, SIGVTALRM, SIGIO,   SIGPWR,  SIGSTKFLT, SIGXCPU};
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) numbers.push_back(number);
  sigset_t all = named;
  for (const int number : numbers) {
    struct sigaction action {};
    if (sigismember(&taken, number) == 0 && sigaction(number, nullptr, &action) == 0 &&
        action.sa_handler == SIG_DFL)
      sigaddset(&all, number);
  }
  return all;
}

sigset_t Union(const sigset_t& a, const sigset_t& b) {
  sigset_t both;
  sigorset(&both, &a, &b);
  return both;
}

sigset_t WithChildSignal(sigset_t signals) {
  sigaddset(&signals, SIGCHLD);
  return signals;
}

void RestoreChildSignal() { signal(SIGCHLD, SIG_DFL); }

sigset_t BlockSignals(const sigset_t& signals) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  const sigset_t blocked = WithChildSignal(signals);
  sigset_t before;
  sigemptyset(&before);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  return before;
}

}  // namespace ddprun
