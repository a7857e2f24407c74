// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ddprun {

// How far a training is; with the seed and the sizes it says which samples come next. A checkpoint
// holds it.
struct TrainingPosition {
  std::int64_t step = 0;      // steps of the optimizer since the beginning
  std::int64_t epoch = 0;     // counted from 0
  std::int64_t consumed = 0;  // samples of this epoch that all ranks together have trained with

  void NextEpoch() {
    ++epoch;
    consumed = 0;
  }
  bool operator==(const TrainingPosition&) const = default;
};

}  // namespace ddprun
