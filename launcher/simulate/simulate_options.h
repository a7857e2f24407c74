// SPDX-License-Identifier: Apache-2.0
// The command line of `ddprun simulate`. Pure.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/base/flags.h"
#include "launcher/simulate/fleet.h"

namespace ddprun {

struct SimulateRequest {
  FleetPlan plan;
  std::chrono::milliseconds mtbf{0};  // of all machines together
  int seed = 1;                       // the first one
  int seeds = 5;
  bool json = false;
};

std::vector<Flag> SimulateFlags();

// `arguments` after the command's name. The plan is complete: without --checkpoint it has the best
// interval.
absl::StatusOr<std::variant<ShowText, SimulateRequest>> ParseSimulateRequest(
    const std::vector<std::string>& arguments);

}  // namespace ddprun
