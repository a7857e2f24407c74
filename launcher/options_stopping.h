// SPDX-License-Identifier: Apache-2.0
// Flags about how workers are ended: signals and the time they have. Pure.
#pragma once

#include <chrono>
#include <vector>

#include "launcher/flags.h"

namespace ddprun {

struct StopOptions {
  std::chrono::milliseconds term_timeout{0};
};

extern const std::vector<Flag> kStopFlags;

StopOptions ReadStopOptions(Reader& reader);

}  // namespace ddprun
