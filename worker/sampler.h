// SPDX-License-Identifier: Apache-2.0
// Which images a rank sees, in which order. Pure functions of their arguments.
#pragma once

#include <cstdint>
#include <vector>

namespace ddprun {

struct Shard {
  int rank = 0;
  int world_size = 1;
};

// The numbers of torch.utils.data.DistributedSampler(shuffle=True, drop_last=False, seed=seed)
// after set_epoch(epoch): torch.randperm of a generator seeded with seed + epoch, filled up from
// its own beginning to a multiple of the world size, of which this rank has every world_size-th.
// `size` must be positive.
std::vector<std::int64_t> TrainingIndices(std::int64_t size, Shard shard, std::uint64_t seed,
                                          std::uint64_t epoch);

// For evaluation: in order, and nothing is filled up, so that over all ranks each index is there
// exactly once. Ranks may differ in length by one.
std::vector<std::int64_t> EvaluationIndices(std::int64_t size, Shard shard);

}  // namespace ddprun
