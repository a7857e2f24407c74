// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/damaged_samples.h"

#include <utility>

namespace ddprun {

void DamagedSamples::Met(const DamagedSample& sample) {
  const std::lock_guard lock(mutex_);
  if (met_.size() > kDamagedNamedMax || !met_.insert(sample.fact).second) return;
  tell_(met_.size() <= kDamagedNamedMax
            ? "skips " + sample.fact
            : "skips more damaged files, which are not named; train check names all of them");
}

void DamagedSamples::CountFilled(std::int64_t places) {
  const std::lock_guard lock(mutex_);
  filled_ += places;
}

std::int64_t DamagedSamples::TakeFilled() {
  const std::lock_guard lock(mutex_);
  return std::exchange(filled_, 0);
}

}  // namespace ddprun
