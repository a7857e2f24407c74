// SPDX-License-Identifier: Apache-2.0
// Flags about what follows a failure: how often, and after what, workers are started again. Pure.
#pragma once

#include <vector>

#include "launcher/base/flags.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

struct RestartOptions {
  int max_restarts = 0;
  RestartPolicy policy;
};

extern const std::vector<Flag> kRestartFlags;

RestartOptions ReadRestartOptions(Reader& reader);

}  // namespace ddprun
