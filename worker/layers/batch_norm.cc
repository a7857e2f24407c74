// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/batch_norm.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <memory>
#include <unordered_set>
#include <utility>

#include "worker/layers/fused_norm.h"

namespace ddprun {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;

// What backward needs beside tensors, in the form that an autograd context can hold.
struct Ranks : torch::CustomClassHolder {
  explicit Ranks(SumOverRanks of_sum) : sum(std::move(of_sum)) {}
  const SumOverRanks sum;
};

struct Statistics {
  at::Tensor mean;  // C
  at::Tensor variance;
  double count = 0;  // values of one channel, over all ranks
};

const std::vector<std::int64_t> kAllButChannels = {0, 2, 3};

// One exchange of 2C + 1 numbers. In double: the variance is a difference of large numbers where a
// mean is large.
Statistics OverRanks(const at::Tensor& x, const SumOverRanks& sum) {
  const auto [variance, mean] =
      at::var_mean(x.to(at::kFloat), kAllButChannels, /*correction=*/std::optional<at::Scalar>(0));
  const std::int64_t channels = x.size(1);
  const double own_count = static_cast<double>(x.numel()) / static_cast<double>(channels);
  const at::Tensor own_mean = mean.to(at::kDouble);
  at::Tensor sums =
      at::cat({own_mean * own_count, (variance.to(at::kDouble) + own_mean.square()) * own_count,
               at::full({1}, own_count, own_mean.options())});
  sum(sums);
  const double count = sums[2 * channels].item<double>();
  const at::Tensor all_mean = sums.narrow(0, 0, channels) / count;
  const at::Tensor all_variance =
      (sums.narrow(0, channels, channels) / count - all_mean.square()).clamp_min(0);
  return {all_mean.to(at::kFloat), all_variance.to(at::kFloat), count};
}

at::Tensor ByChannel(const at::Tensor& values) { return values.view({1, -1, 1, 1}); }

// torch/nn/modules/_functions.py, SyncBatchNorm.
struct Normalize : torch::autograd::Function<Normalize> {
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          const Variable& bias, const Statistics& statistics, double eps,
                          const c10::intrusive_ptr<Ranks>& ranks) {
    context->save_for_backward({x, weight, statistics.mean, statistics.variance});
    context->saved_data["count"] = statistics.count;
    context->saved_data["eps"] = eps;
    context->saved_data["ranks"] = c10::IValue::make_capsule(ranks);
    return at::batch_norm(x, weight, bias, statistics.mean, statistics.variance,
                          /*training=*/false, /*momentum=*/0, eps, /*cudnn_enabled=*/true);
  }

  static std::vector<Variable> backward(AutogradContext* context, std::vector<Variable> gradients) {
    const auto saved = context->get_saved_variables();
    const double count = context->saved_data["count"].toDouble();
    const double eps = context->saved_data["eps"].toDouble();
    const auto capsule = context->saved_data["ranks"].toCapsule();
    const auto& ranks = static_cast<const Ranks&>(*capsule);

    const at::Tensor inverse = ByChannel(at::rsqrt(saved[3] + eps));
    const at::Tensor normalized = (saved[0].to(at::kFloat) - ByChannel(saved[2])) * inverse;
    const at::Tensor gradient = gradients[0].to(at::kFloat);
    const at::Tensor bias_gradient = gradient.sum(kAllButChannels);
    const at::Tensor weight_gradient = (gradient * normalized).sum(kAllButChannels);
    at::Tensor means = at::stack({bias_gradient, weight_gradient});
    ranks.sum(means);
    means /= count;
    const at::Tensor x_gradient =
        (gradient - ByChannel(means[0]) - normalized * ByChannel(means[1])) *
        (inverse * ByChannel(saved[1]));
    return {x_gradient.to(saved[0].scalar_type()), weight_gradient, bias_gradient, {}, {}, {}};
  }
};

}  // namespace

NormState BatchNormImpl::State() const {
  return {.weight = weight,
          .bias = bias,
          .running_mean = running_mean,
          .running_variance = running_var,
          .momentum = options.momentum().value_or(0),
          .eps = options.eps()};
}

at::Tensor BatchNormImpl::ByKernels(const at::Tensor& x, const at::Tensor& shortcut,
                                    NormTail tail) {
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
  return NormByKernels(x, shortcut, tail, state, num_batches_tracked, sum_over_ranks_);
}

at::Tensor BatchNormImpl::ByOperations(const at::Tensor& x) {
  if (!sum_over_ranks_ || !is_training()) return BatchNorm2dImpl::forward(x);
  _check_input_dim(x);
  Statistics statistics;
  {
    const torch::NoGradGuard no_grad;
    statistics = OverRanks(x, sum_over_ranks_);
    const double momentum = options.momentum().value();
    num_batches_tracked += 1;
    running_mean.lerp_(statistics.mean, momentum);
    running_var.lerp_(statistics.variance * (statistics.count / (statistics.count - 1)), momentum);
  }
  return Normalize::apply(x, weight, bias, statistics, options.eps(),
                          c10::make_intrusive<Ranks>(sum_over_ranks_));
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
