// SPDX-License-Identifier: Apache-2.0
#include "worker/training/random_state.h"

#include <ATen/Context.h>
#include <torch/utils.h>

#include "worker/data/random.h"

namespace ddprun {
namespace {

at::Tensor OwnState(const World& world) {
  at::Generator generator = at::globalContext().defaultGenerator(world.device());
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

at::Tensor GatherRandomStates(World& world) { return world.AllGather(OwnState(world)); }

void RestoreRandomState(const World& world, const at::Tensor& states) {
  at::Generator generator = at::globalContext().defaultGenerator(world.device());
  const std::lock_guard lock(generator.mutex());
  generator.set_state(states[world.rank()].clone());
}

void ReseedRandom(const World& world, std::uint64_t seed, std::int64_t step) {
  torch::manual_seed(
      SplitMix64({seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(world.rank())})
          .Next());
}

}  // namespace ddprun
