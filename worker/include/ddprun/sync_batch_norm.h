// SPDX-License-Identifier: Apache-2.0
// Batch normalisation over the batches of all ranks (Python's torch.nn.SyncBatchNorm), on any
// device that the backend's all-reduce takes.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "ddprun/world.h"

namespace ddprun {

// A module in place of BatchNorm1d, 2d and 3d, with the same parameters and buffers under the same
// names: weight, bias, running_mean, running_var, num_batches_tracked. Input: (N, C, ...), float,
// or half and bfloat16 as BatchNorm takes them. In training, forward and backward communicate: all
// ranks must run both, with as many calls, and no rank an empty batch. `world` must outlive the
// module.
class SyncBatchNormImpl : public torch::nn::Module {
 public:
  struct Options {
    double eps = 1e-5;
    double momentum = 0.1;
    bool affine = true;
  };

  SyncBatchNormImpl(World& world, std::int64_t features, const Options& options);
  SyncBatchNormImpl(World& world, std::int64_t features)
      : SyncBatchNormImpl(world, features, Options()) {}

  at::Tensor forward(const at::Tensor& input);

  at::Tensor weight;  // of ones; undefined if not affine, as the next
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
  at::Tensor num_batches_tracked;

 private:
  World& world_;
  const Options options_;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace ddprun
