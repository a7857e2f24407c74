// SPDX-License-Identifier: Apache-2.0
#include "worker/library/math/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

namespace ddprun {

at::Tensor EpochOrder(std::int64_t size, std::uint64_t seed, std::uint64_t epoch) {
  auto generator = at::detail::createCPUGenerator(seed + epoch);
  return at::randperm(size, generator, at::TensorOptions(at::kLong));
}

std::vector<std::int64_t> EvaluationIndices(std::int64_t size, Shard shard) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = shard.rank; i < size; i += shard.world_size) indices.push_back(i);
  return indices;
}

}  // namespace ddprun
