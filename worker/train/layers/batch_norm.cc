// SPDX-License-Identifier: Apache-2.0
#include "worker/train/layers/batch_norm.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/max_pool2d.h>

#include <memory>
#include <unordered_set>
#include <utility>

#include "worker/library/math/sync_norm.h"
#include "worker/train/layers/fused_norm.h"
#include "worker/train/layers/max_pool.h"

namespace ddprun {
NormState BatchNormImpl::State() const {
  return {.weight = weight,
          .bias = bias,
          .running_mean = running_mean,
          .running_variance = running_var,
          .momentum = options.momentum().value_or(0),
          .eps = options.eps()};
}

at::Tensor BatchNormImpl::ByKernels(const at::Tensor& x, const at::Tensor& shortcut, NormTail tail,
                                    bool pool) {
  const NormState state = State();
  if (!CanNormByKernels(x, shortcut, state) || x.size(1) != weight.numel()) return {};
  if (!is_training()) {
    // Gradients through an evaluation are LibTorch's.
    return at::GradMode::is_enabled() ? at::Tensor()
                                      : NormByRunningStatistics(x, shortcut, tail, state);
  }
  if (!options.momentum()) return {};
  // A single value has no variance, of which LibTorch's sentence tells.
  if (!sum_over_ranks_ && x.numel() == x.size(1)) return {};
  return NormByKernels(x, shortcut, tail, state, num_batches_tracked, sum_over_ranks_, pool);
}

at::Tensor BatchNormImpl::ByOperations(const at::Tensor& x) {
  if (!sum_over_ranks_ || !is_training()) return BatchNorm2dImpl::forward(x);
  _check_input_dim(x);
  return SyncNorm(x,
                  {.weight = weight,
                   .bias = bias,
                   .running_mean = running_mean,
                   .running_variance = running_var,
                   .batches = num_batches_tracked,
                   .momentum = options.momentum().value(),
                   .eps = options.eps()},
                  sum_over_ranks_);
}

at::Tensor BatchNormImpl::forward(const at::Tensor& x) {
  const at::Tensor out = ByKernels(x, {}, NormTail::kNone);
  return out.defined() ? out : ByOperations(x);
}

at::Tensor BatchNormImpl::Relu(const at::Tensor& x) {
  const at::Tensor out = ByKernels(x, {}, NormTail::kRelu);
  return out.defined() ? out : ByOperations(x).relu_();
}

at::Tensor BatchNormImpl::Gelu(const at::Tensor& x) {
  const at::Tensor out = ByKernels(x, {}, NormTail::kGelu);
  return out.defined() ? out : at::gelu(ByOperations(x));
}

at::Tensor BatchNormImpl::PoolGelu(const at::Tensor& x) {
  if (is_training() && CanPoolByKernels(x)) {
    const at::Tensor out = ByKernels(x, {}, NormTail::kGelu, /*pool=*/true);
    if (out.defined()) return out;
  }
  return Gelu(at::max_pool2d(x, 2));
}

at::Tensor BatchNormImpl::AddRelu(const at::Tensor& x, const at::Tensor& shortcut) {
  const at::Tensor out = ByKernels(x, shortcut, NormTail::kAddRelu);
  return out.defined() ? out : ByOperations(x).add_(shortcut).relu_();
}

at::Tensor BatchNormImpl::ReluAdd(const at::Tensor& x, const at::Tensor& shortcut) {
  const at::Tensor out = ByKernels(x, shortcut, NormTail::kReluAdd);
  if (out.defined()) return out;
  if (is_training() && !sum_over_ranks_ && options.momentum() &&
      CanFuseNorm(x, shortcut, State())) {
    num_batches_tracked += 1;
    return NormReluAdd(x, shortcut, State());
  }
  return ByOperations(x).relu_().add(shortcut);
}

int SynchronizeBatchNorm(torch::nn::Module& module, const SumOverRanks& sum) {
  std::unordered_set<const torch::nn::Module*> seen;  // a shared block is registered ten times
  for (const auto& child : module.modules()) {
    auto* batch_norm = child->as<BatchNormImpl>();
    if (batch_norm == nullptr || !seen.insert(batch_norm).second) continue;
    batch_norm->Synchronize(sum);
  }
  return static_cast<int>(seen.size());
}

}  // namespace ddprun
