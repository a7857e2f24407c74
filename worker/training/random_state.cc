// SPDX-License-Identifier: Apache-2.0
#include "worker/training/random_state.h"

#include <ATen/Context.h>
#include <torch/utils.h>

#include <mutex>

#include "worker/data/random.h"

namespace ddprun {

at::Tensor RandomState(at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void SetRandomState(at::Device device, const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

void SeedRandomState(std::uint64_t seed, std::int64_t step, int rank) {
  torch::manual_seed(
      SplitMix64({seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(rank)})
          .Next());
}

}  // namespace ddprun
