// SPDX-License-Identifier: Apache-2.0
#include "worker/library/math/sync_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

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

std::vector<std::int64_t> AllButChannels(const at::Tensor& x) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t i = 0; i < x.dim(); ++i) {
    if (i != 1) dimensions.push_back(i);
  }
  return dimensions;
}

// One exchange of 2C + 1 numbers. In double: the variance is a difference of large numbers where a
// mean is large.
Statistics OverRanks(const at::Tensor& x, const SumOverRanks& sum) {
  const auto [variance, mean] = at::var_mean(x.to(at::kFloat), AllButChannels(x),
                                             /*correction=*/std::optional<at::Scalar>(0));
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

// (C) as (1, C, 1, ...), for `x`.
at::Tensor ByChannel(const at::Tensor& values, const at::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = -1;
  return values.view(shape);
}

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

    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const auto dimensions = AllButChannels(x);
    const at::Tensor inverse = ByChannel(at::rsqrt(saved[3] + eps), x);
    const at::Tensor normalized = (x.to(at::kFloat) - ByChannel(saved[2], x)) * inverse;
    const at::Tensor gradient = gradients[0].to(at::kFloat);
    const at::Tensor bias_gradient = gradient.sum(dimensions);
    const at::Tensor weight_gradient = (gradient * normalized).sum(dimensions);
    at::Tensor means = at::stack({bias_gradient, weight_gradient});
    ranks.sum(means);
    means /= count;
    const at::Tensor scale = weight.defined() ? inverse * ByChannel(weight, x) : inverse;
    const at::Tensor x_gradient =
        (gradient - ByChannel(means[0], x) - normalized * ByChannel(means[1], x)) * scale;
    if (!weight.defined()) return {x_gradient.to(x.scalar_type()), {}, {}, {}, {}, {}};
    return {x_gradient.to(x.scalar_type()), weight_gradient, bias_gradient, {}, {}, {}};
  }
};

}  // namespace

at::Tensor SyncNorm(const at::Tensor& x, const SyncNormState& state, const SumOverRanks& sum) {
  Statistics statistics;
  {
    const torch::NoGradGuard no_grad;
    statistics = OverRanks(x, sum);
    at::Tensor(state.batches).add_(1);
    state.running_mean.lerp_(statistics.mean, state.momentum);
    state.running_variance.lerp_(statistics.variance * (statistics.count / (statistics.count - 1)),
                                 state.momentum);
  }
  return Normalize::apply(x, state.weight, state.bias, statistics, state.eps,
                          c10::make_intrusive<Ranks>(sum));
}

}  // namespace ddprun
