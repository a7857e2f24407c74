// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/step_patience.h"

#include <algorithm>
#include <utility>

#include "worker/checkpoint/stop_signal.h"

namespace ddprun {

void StepPatience::Add(Seconds step) {
  if (steps_++ == kWindow) {
    steps_ = 1;
    longest_before_ = std::exchange(longest_, Seconds{0});
  }
  longest_ = std::max(longest_, step);
}

StepPatience::Seconds StepPatience::Get() const {
  return kTimes * std::max(longest_, longest_before_) + StopSignal::kPatienceMin;
}

}  // namespace ddprun
