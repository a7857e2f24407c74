// SPDX-License-Identifier: Apache-2.0
#include "worker/train/loader/step_batches.h"

#include <algorithm>
#include <numeric>

namespace ddprun {

StepShares SharesOf(const EpochPlan& plan, const StepBatches& batches, std::int64_t accumulate) {
  const std::int64_t ranks = plan.options().shard.world_size;
  const std::int64_t batch_size = plan.options().batch_size;
  StepShares shares;
  for (std::int64_t i = 0; i < batches.count; ++i) {
    shares.samples += plan.GlobalSize(batches.first + i);
    shares.own.push_back(plan.OwnSize(batches.first + i));
  }
  for (const std::int64_t own : shares.own)
    shares.weights.push_back(static_cast<double>(own * ranks) /
                             static_cast<double>(shares.samples));
  shares.own_samples = std::accumulate(shares.own.begin(), shares.own.end(), std::int64_t{0});
  shares.full = batches.count == accumulate &&
                shares.samples == batches.count * batch_size * ranks &&
                std::all_of(shares.own.begin(), shares.own.end(),
                            [batch_size](std::int64_t own) { return own == batch_size; });
  return shares;
}

}  // namespace ddprun
