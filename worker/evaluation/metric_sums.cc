// SPDX-License-Identifier: Apache-2.0
#include "worker/evaluation/metric_sums.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "worker/evaluation/metric.h"

namespace ddprun {
namespace {

constexpr std::int64_t kImages = 0;
constexpr std::int64_t kLoss = 1;
constexpr std::int64_t kFirstMetric = 2;

at::Tensor Zeros(at::Device device) {
  const auto metrics = static_cast<std::int64_t>(Metrics().entries().size());
  return at::zeros({kFirstMetric + metrics}, at::TensorOptions(device).dtype(at::kDouble));
}

}  // namespace

void MetricSums::Add(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& loss,
                     double weight) {
  const torch::NoGradGuard no_grad;
  if (labels.size(0) == 0) return;
  On(scores.device());
  sums_[kImages].add_(labels.size(0));
  sums_[kLoss].add_(loss.detach().to(at::kDouble), weight);
  std::int64_t i = kFirstMetric;
  for (const auto& [name, metric] : Metrics().entries())
    sums_[i++].add_(metric(scores.detach(), labels));
}

Evaluation MetricSums::Take(World& world) {
  // A rank without the model's last stage has added nothing.
  at::Tensor sums = Zeros(world.device());
  if (sums_.defined()) sums.copy_(sums_);
  world.AllReduceSum(sums);
  const at::Tensor all = world.ToHost(sums);
  if (sums_.defined()) sums_.zero_();
  if (kept_.defined()) kept_.zero_();
  const auto of_all_ranks = all.accessor<double, 1>();
  Evaluation totals{.images = static_cast<std::int64_t>(of_all_ranks[kImages])};
  if (totals.images > 0) totals.loss = of_all_ranks[kLoss] / static_cast<double>(totals.images);
  std::int64_t i = kFirstMetric;
  for (const auto& [name, metric] : Metrics().entries()) totals.sums[name] = of_all_ranks[i++];
  return totals;
}

const at::Tensor& MetricSums::On(at::Device device) {
  if (!sums_.defined()) sums_ = Zeros(device);
  return sums_;
}

at::Tensor MetricSums::Values() const { return sums_.defined() ? sums_.clone() : at::Tensor(); }

void MetricSums::SetValues(const at::Tensor& values) {
  if (values.defined() && !sums_.defined()) sums_ = at::zeros_like(values);
  if (!sums_.defined()) return;
  if (values.defined())
    sums_.copy_(values);
  else
    sums_.zero_();
}

void MetricSums::Keep() {
  if (!sums_.defined()) return;
  if (!kept_.defined()) kept_ = at::empty_like(sums_);
  kept_.copy_(sums_);
}

void MetricSums::TakeBack() {
  if (!sums_.defined()) return;
  if (kept_.defined())
    sums_.copy_(kept_);
  else
    sums_.zero_();
}

}  // namespace ddprun
