// SPDX-License-Identifier: Apache-2.0
// How a process ended.
#pragma once

#include <string>
#include <variant>

#include "rendezvous/base/signal_name.h"

namespace ddprun {

struct Exited {
  int code = 0;
  bool operator==(const Exited&) const = default;
};

struct Signaled {
  int signal = 0;
  bool core_dumped = false;
  bool operator==(const Signaled&) const = default;
};

// The process was never started. `exit_code` as in a shell: 127 not found, 126 any other error.
struct SpawnFailed {
  int exit_code = 126;
  std::string message;
  bool operator==(const SpawnFailed&) const = default;
};

using Outcome = std::variant<Exited, Signaled, SpawnFailed>;

// As a shell reports it.
inline int ExitCodeOf(const Outcome& outcome) {
  if (const auto* signaled = std::get_if<Signaled>(&outcome))
    return ExitCodeOfSignal(signaled->signal);
  const auto* exited = std::get_if<Exited>(&outcome);
  return exited != nullptr ? exited->code : std::get<SpawnFailed>(outcome).exit_code;
}

inline bool IsSuccess(const Outcome& outcome) { return outcome == Outcome(Exited{0}); }

}  // namespace ddprun
