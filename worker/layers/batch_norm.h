// SPDX-License-Identifier: Apache-2.0
// The models' batch norm: torch.nn.BatchNorm2d's names and numbers, in NetResDeep in one pass with
// what follows it, and over the batches of all ranks, for batches too small to
// tell a mean by themselves: torch.nn.SyncBatchNorm's numbers, on CPUs too, where Python has none.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <functional>

namespace ddprun {

// Adds up a tensor over all ranks, in place. Called in training by forward and, on autograd's
// thread, by backward, on every rank in the same order.
using SumOverRanks = std::function<void(at::Tensor&)>;

// torch.nn.BatchNorm2d, with its names and numbers, until Synchronize() is called.
class BatchNormImpl : public torch::nn::BatchNorm2dImpl {
 public:
  using torch::nn::BatchNorm2dImpl::BatchNorm2dImpl;

  // N x C x height x width.
  at::Tensor forward(const at::Tensor& x);

  // The same bits as relu(forward(x)) + shortcut, in fewer passes where images are channels-last
  // floats on a CPU. `shortcut` has x's shape.
  at::Tensor ReluAdd(const at::Tensor& x, const at::Tensor& shortcut);

  // From now on training takes mean and variance over all ranks' batches, which may differ in size.
  // The gradients of weight and bias stay this rank's own, as DDP averages them; so do running
  // statistics, which come out the same on all.
  void Synchronize(SumOverRanks sum) { sum_over_ranks_ = std::move(sum); }

 private:
  SumOverRanks sum_over_ranks_;
};
TORCH_MODULE(BatchNorm);

// Synchronize() for every BatchNorm in `module`, as convert_sync_batchnorm() in Python. How many
// there are.
int SynchronizeBatchNorm(torch::nn::Module& module, const SumOverRanks& sum);

}  // namespace ddprun
