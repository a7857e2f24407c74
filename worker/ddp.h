// SPDX-License-Identifier: Apache-2.0
// Data parallelism: the same parameters on every rank, gradients averaged over all ranks while
// backward still runs. c10d::Reducer does the work, as it does in Python's
// torch.nn.parallel.DistributedDataParallel, whose steps and defaults are kept
// (torch/nn/parallel/distributed.py): buckets of 25 MiB in reverse order of the parameters with a
// first one of 1 MiB, rebuilt once in the order in which gradients came; gradients are views into
// the buckets; buffers (batch norm's running statistics) are rank 0's before every forward in
// training.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/world.h"

namespace c10d {
class Reducer;
}

namespace ddprun {

class DistributedDataParallel {
 public:
  struct Options {
    std::int64_t bucket_bytes = 25 << 20;
    std::int64_t first_bucket_bytes = 1 << 20;
    bool broadcast_buffers = true;
    bool find_unused_parameters = false;
  };

  // Makes all ranks' parameters and buffers those of rank 0, after checking that all have the same
  // shapes. The module's parameters must be on the world's device and in their final memory format.
  // Throws c10::Error if the ranks' models differ.
  DistributedDataParallel(World& world, torch::nn::Module& module, Options options);
  ~DistributedDataParallel();

  // Runs `forward` (which gives the outputs that the loss depends on) as DDP must: buffers
  // synchronised before, reducer told of the outputs after. In eval mode, or with gradients off, it
  // just runs it.
  at::Tensor Forward(const std::function<at::Tensor()>& forward);

  // Sets gradients to zero without letting go of the buckets' memory, as Optimizer::zero_grad()
  // would.
  void ZeroGrad();

 private:
  void SynchronizeBuffers();

  World& world_;
  torch::nn::Module& module_;
  const Options options_;
  std::vector<at::Tensor> parameters_;  // those that need gradients, in the module's order
  std::unique_ptr<c10d::Reducer> reducer_;
  bool buckets_rebuilt_ = false;
};

}  // namespace ddprun
