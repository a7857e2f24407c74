// SPDX-License-Identifier: Apache-2.0
#include "ddprun/sync_batch_norm.h"

#include <torch/torch.h>

#include <stdexcept>
#include <string>

#include "worker/library/math/sync_norm.h"

namespace ddprun {

SyncBatchNormImpl::SyncBatchNormImpl(World& world, std::int64_t features, const Options& options)
    : world_(world), options_(options) {
  if (options_.affine) {
    weight = register_parameter("weight", at::ones({features}));
    bias = register_parameter("bias", at::zeros({features}));
  }
  running_mean = register_buffer("running_mean", at::zeros({features}));
  running_var = register_buffer("running_var", at::ones({features}));
  num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  if (input.dim() < 2 || input.size(1) != running_mean.size(0))
    throw std::invalid_argument("SyncBatchNorm of " + std::to_string(running_mean.size(0)) +
                                " features got an input of " + c10::str(input.sizes()) +
                                "; it takes (N, C, ...)");
  if (!is_training())
    return at::batch_norm(input, weight, bias, running_mean, running_var, /*training=*/false,
                          options_.momentum, options_.eps, /*cudnn_enabled=*/true);
  return SyncNorm(input,
                  {.weight = weight,
                   .bias = bias,
                   .running_mean = running_mean,
                   .running_variance = running_var,
                   .batches = num_batches_tracked,
                   .momentum = options_.momentum,
                   .eps = options_.eps},
                  [this](at::Tensor& sums) { world_.AllReduceSum(sums); });
}

}  // namespace ddprun
