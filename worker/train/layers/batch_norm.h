// SPDX-License-Identifier: Apache-2.0
// The models' batch norm: torch.nn.BatchNorm2d's names and numbers, on a GPU (and in NetResDeep on
// a CPU) in one pass with what follows it, and over the batches of all ranks, for batches too small
// to tell a mean by themselves: torch.nn.SyncBatchNorm's numbers, on CPUs too, where Python has
// none.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <functional>
#include <utility>

#include "worker/train/layers/gpu_norm.h"

namespace ddprun {

// torch.nn.BatchNorm2d, with its names and numbers, until Synchronize() is called.
class BatchNormImpl : public torch::nn::BatchNorm2dImpl {
 public:
  using torch::nn::BatchNorm2dImpl::BatchNorm2dImpl;

  // N x C x height x width.
  at::Tensor forward(const at::Tensor& x);

  // The norm and what follows it. On a GPU the numbers differ by rounding from those
  // of one operation after the other; elsewhere they have the same bits. `shortcut` has x's shape.
  at::Tensor Relu(const at::Tensor& x);
  at::Tensor Gelu(const at::Tensor& x);
  // gelu(forward(max_pool2d(x, 2)))
  at::Tensor PoolGelu(const at::Tensor& x);
  // relu(forward(x) + shortcut)
  at::Tensor AddRelu(const at::Tensor& x, const at::Tensor& shortcut);
  // relu(forward(x)) + shortcut; on a CPU in fewer passes where images are channels-last floats.
  at::Tensor ReluAdd(const at::Tensor& x, const at::Tensor& shortcut);

  // From now on training takes mean and variance over all ranks' batches, which may differ in size.
  // The gradients of weight and bias stay this rank's own, as DDP averages them; so do running
  // statistics, which come out the same on all.
  void Synchronize(SumOverRanks sum) { sum_over_ranks_ = std::move(sum); }

 private:
  NormState State() const;
  // Undefined where the kernels of batch_norm.cu do not take it.
  at::Tensor ByKernels(const at::Tensor& x, const at::Tensor& shortcut, NormTail tail,
                       bool pool = false);
  // The norm alone, by LibTorch's operations.
  at::Tensor ByOperations(const at::Tensor& x);

  SumOverRanks sum_over_ranks_;
};
TORCH_MODULE(BatchNorm);

// Synchronize() for every BatchNorm in `module`, as convert_sync_batchnorm() in Python. How many
// there are.
int SynchronizeBatchNorm(torch::nn::Module& module, const SumOverRanks& sum);

}  // namespace ddprun
