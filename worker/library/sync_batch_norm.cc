// SPDX-License-Identifier: Apache-2.0
#include "ddprun/sync_batch_norm.h"

#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace ddprun {
namespace {

// All dimensions but that of the channels.
std::vector<std::int64_t> BatchDimensions(const at::Tensor& input) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t i = 0; i < input.dim(); ++i) {
    if (i != 1) dimensions.push_back(i);
  }
  return dimensions;
}

// (C) as (1, C, 1, ...), for `input`.
at::Tensor PerChannel(const at::Tensor& values, const at::Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = input.size(1);
  return values.view(shape);
}

struct Moments {
  at::Tensor mean;      // (C), as the next
  at::Tensor variance;  // biased
  at::Tensor count;     // samples of a channel, of all ranks: one number
};

// Each rank's mean and squared deviations, put together as Chan, Golub and LeVeque do ("Algorithms
// for computing the sample variance", 1983): a sum of squares would lose what is small beside the
// mean.
Moments MomentsOfAll(World& world, const at::Tensor& input) {
  const std::int64_t features = input.size(1);
  const auto dimensions = BatchDimensions(input);
  const at::Tensor mean = input.mean(dimensions);
  const at::Tensor deviations = (input - PerChannel(mean, input)).square().sum(dimensions);
  const double count = static_cast<double>(input.numel() / features);
  at::Tensor ranks = at::zeros({world.size(), 2 * features + 1}, input.options());
  const at::Tensor own = ranks[world.rank()];
  own.narrow(0, 0, features).copy_(mean);
  own.narrow(0, features, features).copy_(deviations);
  own[2 * features] = count;
  world.AllReduceSum(ranks);
  const at::Tensor means = ranks.narrow(1, 0, features);
  const at::Tensor counts = ranks.narrow(1, 2 * features, 1);
  Moments moments;
  moments.count = counts.sum();
  moments.mean = (means * counts).sum(0) / moments.count;
  moments.variance = (ranks.narrow(1, features, features).sum(0) +
                      ((means - moments.mean).square() * counts).sum(0)) /
                     moments.count;
  return moments;
}

class Normalize : public torch::autograd::Function<Normalize> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& input, const at::Tensor& weight,
                                                const at::Tensor& bias, double eps,
                                                std::int64_t world) {
    const Moments moments = MomentsOfAll(*reinterpret_cast<World*>(world), input);
    const at::Tensor inverse = (moments.variance + eps).rsqrt();
    const at::Tensor normal =
        (input - PerChannel(moments.mean, input)) * PerChannel(inverse, input);
    context->save_for_backward({normal, weight, inverse, moments.count});
    context->saved_data["world"] = world;
    const at::Tensor output =
        weight.defined() ? normal * PerChannel(weight, input) + PerChannel(bias, input) : normal;
    context->mark_non_differentiable({moments.mean, moments.variance, moments.count});
    return {output, moments.mean, moments.variance, moments.count};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &normal = saved[0], &weight = saved[1], &inverse = saved[2], &count = saved[3];
    const at::Tensor& gradient = gradients[0];
    const auto dimensions = BatchDimensions(normal);
    const at::Tensor sum = gradient.sum(dimensions);
    const at::Tensor product = (gradient * normal).sum(dimensions);
    at::Tensor sums = at::stack({sum, product});
    reinterpret_cast<World*>(context->saved_data["world"].toInt())->AllReduceSum(sums);
    const at::Tensor scale = weight.defined() ? inverse * weight : inverse;
    const at::Tensor input_gradient = (gradient - PerChannel(sums[0] / count, normal) -
                                       normal * PerChannel(sums[1] / count, normal)) *
                                      PerChannel(scale, normal);
    // Of this rank's batch alone: data parallelism averages them over the ranks as any other's.
    return {input_gradient, weight.defined() ? product : at::Tensor(),
            weight.defined() ? sum : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

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
  const auto outputs =
      Normalize::apply(input, weight, bias, options_.eps, reinterpret_cast<std::int64_t>(&world_));
  const torch::NoGradGuard no_grad;
  const at::Tensor& count = outputs[3];
  running_mean.lerp_(outputs[1].to(running_mean.scalar_type()), options_.momentum);
  const at::Tensor unbiased = outputs[2] * (count / (count - 1));
  running_var.lerp_(unbiased.to(running_var.scalar_type()), options_.momentum);
  num_batches_tracked.add_(1);
  return outputs[0];
}

}  // namespace ddprun
