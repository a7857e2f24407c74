// SPDX-License-Identifier: Apache-2.0
#include "launcher/hang/late_workers.h"

#include <algorithm>

#include "rendezvous/base/limits.h"

namespace ddprun {

void LateWorkers::OnExit(int local_rank, TimePoint now) {
  if (static_cast<std::size_t>(local_rank) >= live_.size()) return;
  live_[static_cast<std::size_t>(local_rank)] = false;
  const bool any = std::find(live_.begin(), live_.end(), true) != live_.end();
  due_ = any ? std::optional(now + kLateEndTime) : std::nullopt;
}

std::vector<int> LateWorkers::Take(TimePoint now) {
  std::vector<int> late;
  if (!due_ || now < *due_) return late;
  if (now < last_sign_ + kLateEndTime) {
    due_ = last_sign_ + kLateEndTime;
    return late;
  }
  due_.reset();
  for (std::size_t i = 0; i < live_.size(); ++i) {
    if (live_[i]) late.push_back(static_cast<int>(i));
  }
  return late;
}

}  // namespace ddprun
