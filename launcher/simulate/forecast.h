// SPDX-License-Identifier: Apache-2.0
// What `ddprun simulate` says: a plan's goodput over several seeds, and what one changed setting
// would bring. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/simulate/fleet.h"
#include "launcher/simulate/simulate_options.h"

namespace ddprun {

// One setting moved by one notch.
struct FleetChange {
  std::string flag;  // "--spares 3"
  double gain = 0;   // of goodput, in percentage points: the mean over the seeds
};

struct Forecast {
  SimulateRequest request;
  std::vector<FleetRun> runs;        // one for each seed
  std::vector<FleetChange> changes;  // the greatest gain first
};

// "1h30m", "7d"
std::string TimeText(std::chrono::milliseconds time);

Forecast MakeForecast(const SimulateRequest& request);
std::string ForecastText(const Forecast& forecast, bool utf8);
std::string ForecastJson(const Forecast& forecast);

}  // namespace ddprun
