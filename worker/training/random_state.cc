// SPDX-License-Identifier: Apache-2.0
#include "worker/training/random_state.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <torch/utils.h>

#include <vector>

#include "worker/data/random.h"

namespace ddprun {
namespace {

at::Tensor OwnState(const World& world) {
  at::Generator generator = at::globalContext().defaultGenerator(world.device());
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

at::Tensor GatherRandomStates(World& world) {
  at::Tensor own = OwnState(world);
  if (world.size() == 1) return own.unsqueeze(0);
  std::vector<at::Tensor> input{own.to(world.device())};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int rank = 0; rank < world.size(); ++rank) outputs[0].push_back(at::empty_like(input[0]));
  world.group()->allgather(outputs, input)->wait();
  return at::stack(outputs[0]).cpu();
}

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
