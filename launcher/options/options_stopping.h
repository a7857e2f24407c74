// SPDX-License-Identifier: Apache-2.0
// Flags about how workers are ended: signals and the time they have. Pure.
#pragma once

#include <chrono>
#include <vector>

#include "launcher/base/flags.h"

namespace ddprun {

struct StopOptions {
  std::vector<int> end_signals;                   // that end the run
  std::vector<int> forwarded_signals;             // passed on to the workers, and nothing else
  std::chrono::milliseconds shutdown_timeout{0};  // between SIGTERM and SIGKILL at the run's end
  std::chrono::milliseconds restart_timeout{0};   // before another round
};

extern const std::vector<Flag> kStopFlags;

StopOptions ReadStopOptions(Reader& reader);

// How long a node with these may take from the word to stop to its last process's end.
std::chrono::milliseconds StopTimeout(const StopOptions& options);

}  // namespace ddprun
