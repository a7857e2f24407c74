// SPDX-License-Identifier: Apache-2.0
// ZeRO stage 1 (Rajbhandari et al., 2020), Python's
// torch.distributed.optim.ZeroRedundancyOptimizer: each rank holds the optimizer's state of a part
// of the parameters, makes the step of that part, and sends the new values to the others. Momentum
// and second moments take 1/size of the memory.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ddprun/world.h"

namespace ddprun {

// Which rank holds which parameter: the largest first, each to the rank that has the fewest numbers
// so far. The same on all ranks. Pure.
std::vector<int> DivideAmongRanks(const std::vector<at::Tensor>& parameters, int ranks);

// Not for a program that is kept: what a rank that ends has held alone, is gone (see Checkpoints).
// All ranks must call every method but zero_grad(). One thread at a time.
class ShardedOptimizer {
 public:
  using Make =
      std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<at::Tensor>&)>;

  // `parameters`: all of the model's that need gradients, in the same order on all ranks, which
  // DistributedDataParallel has made alike. `make` gives the optimizer of some of them; not called
  // with none.
  ShardedOptimizer(World& world, std::vector<at::Tensor> parameters, const Make& make);

  // After backward. Afterwards all ranks have the same parameters.
  void step();
  void zero_grad();

  // Optimizer of this rank's part, for its options (learning rate); null without parameters.
  torch::optim::Optimizer* local() { return local_.get(); }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  int owner(std::size_t parameter) const { return owners_[parameter]; }
  World& world() { return world_; }

 private:
  World& world_;
  const std::vector<at::Tensor> parameters_;
  const std::vector<int> owners_;  // of each parameter
  std::unique_ptr<torch::optim::Optimizer> local_;
};

// ZeroRedundancyOptimizer<torch::optim::AdamW> optimizer(world, net->parameters(), {1e-3});
template <typename Optimizer>
class ZeroRedundancyOptimizer : public ShardedOptimizer {
 public:
  template <typename Options>
  ZeroRedundancyOptimizer(World& world, std::vector<at::Tensor> parameters, const Options& options)
      : ShardedOptimizer(world, std::move(parameters), [&options](const auto& part) {
          return std::make_unique<Optimizer>(part, options);
        }) {}
};

}  // namespace ddprun
