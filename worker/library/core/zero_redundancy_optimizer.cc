// SPDX-License-Identifier: Apache-2.0
#include "ddprun/zero_redundancy_optimizer.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "ddprun/detail/collectives.h"

namespace ddprun {

std::vector<int> DivideAmongRanks(const std::vector<at::Tensor>& parameters, int ranks) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return parameters[a].numel() > parameters[b].numel();
  });
  std::vector<std::int64_t> held(static_cast<std::size_t>(ranks));
  std::vector<int> owners(parameters.size());
  for (const std::size_t parameter : order) {
    const auto least = std::min_element(held.begin(), held.end());
    *least += parameters[parameter].numel();
    owners[parameter] = static_cast<int>(least - held.begin());
  }
  return owners;
}

ShardedOptimizer::ShardedOptimizer(World& world, std::vector<at::Tensor> parameters,
                                   const Make& make)
    : world_(world),
      parameters_(std::move(parameters)),
      owners_(DivideAmongRanks(parameters_, world.size())) {
  std::vector<at::Tensor> own;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (owners_[i] == world_.rank()) own.push_back(parameters_[i]);
  }
  if (!own.empty()) local_ = make(own);
}

void ShardedOptimizer::step() {
  if (local_) local_->step();
  if (world_.size() == 1) return;
  const torch::NoGradGuard no_grad;
  for (int rank = 0; rank < world_.size(); ++rank) {
    std::vector<at::Tensor> part;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (owners_[i] == rank) part.push_back(parameters_[i].detach());
    }
    if (!part.empty()) BroadcastAll(world_, part, rank);
  }
}

void ShardedOptimizer::zero_grad() {
  for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

}  // namespace ddprun
