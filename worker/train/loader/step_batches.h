// SPDX-License-Identifier: Apache-2.0
// The batches that one step is made of, and what each counts in it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/library/math/epoch_plan.h"

namespace ddprun {

// A step's batches: `count` of the epoch's from `first` on.
struct StepBatches {
  std::int64_t first = 0;
  std::int64_t count = 1;
};

// The samples of a step's batches, and the factors of the batches' losses with which their sum,
// averaged over the data-parallel ranks, is the mean over all of the step's samples.
struct StepShares {
  std::vector<std::int64_t> own;  // samples of this rank in each batch
  std::vector<double> weights;
  std::int64_t samples = 0;      // of all ranks
  std::int64_t own_samples = 0;  // of this one
  bool full = false;             // all batches of all ranks: a CUDA graph can be of such a step
};

// `accumulate`: batches of a step that is not cut short by the end of its epoch.
StepShares SharesOf(const EpochPlan& plan, const StepBatches& batches, std::int64_t accumulate);

}  // namespace ddprun
