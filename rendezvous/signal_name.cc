// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/signal_name.h"

#include <csignal>
#include <cstring>

namespace ddprun {

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace ddprun
