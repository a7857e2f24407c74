// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/signal_name.h"

#include <csignal>
#include <cstring>

#include "absl/strings/ascii.h"

namespace ddprun {

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

std::optional<int> SignalNumber(const std::string& name) {
  const std::string upper = absl::AsciiStrToUpper(name);
  for (int number = 1; number < NSIG; ++number) {
    const char* known = sigabbrev_np(number);
    if (known != nullptr && (upper == known || upper == std::string("SIG") + known)) return number;
  }
  return std::nullopt;
}

}  // namespace ddprun
