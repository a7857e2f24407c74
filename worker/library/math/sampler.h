// SPDX-License-Identifier: Apache-2.0
// The order of the samples. Pure functions of their arguments.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace ddprun {

struct Shard {
  int rank = 0;
  int world_size = 1;
  bool operator==(const Shard&) const = default;
};

// int64, a permutation: torch.randperm of a generator seeded with seed + epoch, the order of
// torch.utils.data.DistributedSampler(shuffle=True, seed=seed) after set_epoch(epoch).
at::Tensor EpochOrder(std::int64_t size, std::uint64_t seed, std::uint64_t epoch);

// For evaluation: in order, and nothing is filled up, so that over all ranks each index is there
// exactly once. Ranks may differ in length by one.
std::vector<std::int64_t> EvaluationIndices(std::int64_t size, Shard shard);

}  // namespace ddprun
