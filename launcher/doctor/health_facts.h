// SPDX-License-Identifier: Apache-2.0
// Collects the facts of `ddprun health` about this machine. A broken driver or file system may let
// this hang for ever: --health-check-timeout ends it then.
#pragma once

#include "launcher/doctor/health_rules.h"
#include "launcher/options/health_options.h"

namespace ddprun {

// Those for one check. GPUs are looked at again until the memory of the run's last workers is free,
// for at most ten seconds.
HealthFacts CollectHealthFacts(absl::string_view check, const HealthRequest& request);

}  // namespace ddprun
