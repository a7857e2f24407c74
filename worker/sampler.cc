// SPDX-License-Identifier: Apache-2.0
#include "worker/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

namespace ddprun {

std::vector<std::int64_t> TrainingIndices(std::int64_t size, Shard shard, std::uint64_t seed,
                                          std::uint64_t epoch) {
  auto generator = at::detail::createCPUGenerator(seed + epoch);
  const at::Tensor permutation = at::randperm(size, generator, at::TensorOptions(at::kLong));
  const std::int64_t* order = permutation.const_data_ptr<std::int64_t>();
  const std::int64_t per_rank = (size + shard.world_size - 1) / shard.world_size;
  std::vector<std::int64_t> indices;
  indices.reserve(static_cast<std::size_t>(per_rank));
  for (std::int64_t i = 0; i < per_rank; ++i) {
    indices.push_back(order[(shard.rank + i * shard.world_size) % size]);
  }
  return indices;
}

std::vector<std::int64_t> EvaluationIndices(std::int64_t size, Shard shard) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = shard.rank; i < size; i += shard.world_size) indices.push_back(i);
  return indices;
}

}  // namespace ddprun
