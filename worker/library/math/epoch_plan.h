// SPDX-License-Identifier: Apache-2.0
// Which samples which rank sees in which batch of an epoch, from the middle on if wanted. A pure
// function of its options: every rank computes the whole of it alone, and a run that goes on with
// another number of ranks computes the rest.
//
// The order of an epoch is torch.randperm of a generator seeded with seed + epoch, that of
// torch.utils.data.DistributedSampler. Batch k takes the next batch_size * world_size samples of
// it, and rank r every world_size-th of those, from the r-th on. Unlike DistributedSampler nothing
// is repeated to fill up: over all ranks every sample is there exactly once. Where batch_size *
// world_size divides the data set the numbers are DistributedSampler's.
//
// What is left at the end of an epoch is shared out as evenly as it goes: ranks then differ by one
// sample at most. A rest that would give some rank fewer than min(batch_size, 2) samples joins the
// batch before it, as batch norm cannot learn from one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/library/math/sampler.h"

namespace ddprun {

struct Sample {
  std::int64_t index = 0;     // in the data set
  std::int64_t position = 0;  // in the epoch's order over all ranks
};

// Constant after construction.
class EpochPlan {
 public:
  struct Options {
    std::int64_t size = 0;  // of the data set
    Shard shard;
    std::int64_t batch_size = 1;  // of one rank
    std::uint64_t seed = 0;
    std::uint64_t epoch = 0;
    std::int64_t consumed = 0;  // samples of this epoch that were seen, by any number of ranks
    bool operator==(const Options&) const = default;
  };

  // Throws std::invalid_argument if there are fewer samples than ranks, or if more are consumed
  // than there are.
  explicit EpochPlan(const Options& options);

  const Options& options() const { return options_; }
  // The whole of the next epoch.
  Options Next() const;

  // That are left, the same on all ranks.
  std::int64_t batches() const { return batches_; }

  // Samples of all ranks in a batch.
  std::int64_t GlobalSize(std::int64_t batch) const;

  // Samples of this rank in it.
  std::int64_t OwnSize(std::int64_t batch) const;

  // No epoch gives this rank more of them, First() for an empty batch among them.
  std::int64_t OwnLimit() const;

  // Samples of the whole epoch that are consumed, over all ranks, when this batch is done.
  std::int64_t ConsumedAfter(std::int64_t batch) const;

  // This rank's. Empty only if an epoch is resumed with fewer samples left than there are ranks,
  // and only on ranks other than 0.
  std::vector<Sample> Samples(std::int64_t batch) const;

  // The first sample of rank 0 in a batch, which is always there.
  Sample First(std::int64_t batch) const;

  // Number of batches in a whole epoch.
  static std::int64_t BatchesOf(std::int64_t size, int world_size, std::int64_t batch_size);

 private:
  const Options options_;
  const std::int64_t batches_;
  const at::Tensor order_;  // int64, of the whole epoch
};

}  // namespace ddprun
