// SPDX-License-Identifier: Apache-2.0
// The learning rate of every step: a linear rise to the peak, then half a cosine down towards zero.
#pragma once

#include <cstdint>

namespace ddprun {

struct Schedule {
  double peak_rate = 0;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;

  // Of `step` counted from 0. Step 0 of a warm-up has already a share of the peak, and the last
  // step has not yet reached zero: no step is without effect.
  double RateAt(std::int64_t step) const;
};

}  // namespace ddprun
