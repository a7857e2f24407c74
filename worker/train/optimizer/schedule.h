// SPDX-License-Identifier: Apache-2.0
// The learning rate of every step: a rise to the peak, then down as the kind says.
#pragma once

#include <cstdint>

#include "worker/train/config/choices.h"

namespace ddprun {

struct Schedule {
  using Kind = ScheduleKind;
  static constexpr double kOneCycleStart = 1.0 / 25;
  static constexpr double kOneCycleEnd = kOneCycleStart / 1e4;

  Kind kind = Kind::kCosine;
  double peak_rate = 0;
  std::int64_t warmup_steps = 0;  // of all but one-cycle
  double rise_steps = 0;          // of one-cycle; 30 % of the steps may end between two of them
  std::int64_t total_steps = 0;
  std::int64_t step_length = 1;
  double gamma = 0.1;

  // Rate at `step`, from 0. Step 0 of a linear warm-up already has a share of the peak, and the
  // last step has not yet reached zero: no step is without effect.
  double RateAt(std::int64_t step) const;
};

}  // namespace ddprun
