// SPDX-License-Identifier: Apache-2.0
// How many of the workers of `-n N` each host gets. Pure.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/options.h"

namespace ddprun {

// The hosts that are needed, with their workers as slots; without -n the hosts as they are. Hosts
// are filled in their order, as mpirun does it; those without a number share evenly, where mpirun
// counts them as one slot each. INVALID_ARGUMENT: one sentence for people.
absl::StatusOr<std::vector<HostEntry>> ShareTotal(const Options& options,
                                                  std::vector<HostEntry> hosts);

}  // namespace ddprun
