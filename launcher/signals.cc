// SPDX-License-Identifier: Apache-2.0
#include "launcher/signals.h"

#include <initializer_list>

namespace ddprun {

sigset_t EndSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    // A blocked signal is queued even where it is ignored, so it must be left out here.
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN)
      sigaddset(&set, number);
  }
  return set;
}

sigset_t BlockSignals(const sigset_t& end_signals) {
  signal(SIGPIPE, SIG_IGN);
  sigset_t blocked = end_signals;
  sigaddset(&blocked, SIGCHLD);
  sigset_t before;
  sigemptyset(&before);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  return before;
}

}  // namespace ddprun
