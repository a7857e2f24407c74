// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ddprun {

double Schedule::RateAt(std::int64_t step) const {
  if (step < warmup_steps) {
    return peak_rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  const auto length = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
  const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / length);
  return peak_rate * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

}  // namespace ddprun
