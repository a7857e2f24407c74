// SPDX-License-Identifier: Apache-2.0
#include "worker/train/evaluation/metric_sums.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cstring>

#include "ddprun/detail/collectives.h"
#include "worker/train/evaluation/metric.h"

namespace ddprun {
namespace {

constexpr std::int64_t kImages = 0;
constexpr std::int64_t kLoss = 1;
constexpr std::int64_t kFirstMetric = 2;

std::int64_t FirstCount() {
  return kFirstMetric + static_cast<std::int64_t>(Metrics().entries().size());
}

// Adds one for each image. `counts` has the CountsPerClass() of each class, one after another.
void CountPairs(const at::Tensor& scores, const at::Tensor& labels, std::int64_t classes,
                const at::Tensor& counts) {
  const std::int64_t columns = CountsPerClass(classes);
  if (columns == 0) return;
  at::Tensor column = scores.argmax(1);
  if (classes > kMatrixClassesMax) column = (column == labels).to(at::kLong);
  // Whole numbers: the order in which a GPU adds them does not matter.
  counts.index_add_(0, labels * columns + column, at::ones_like(labels, at::kDouble));
}

}  // namespace

at::Tensor MetricSums::Zeros(at::Device device) const {
  return at::zeros({FirstCount() + classes_ * CountsPerClass(classes_)},
                   at::TensorOptions(device).dtype(at::kDouble));
}

void MetricSums::Add(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& loss,
                     double weight) {
  const torch::NoGradGuard no_grad;
  if (labels.size(0) == 0) return;
  if (!sums_.defined()) sums_ = Zeros(scores.device());
  sums_[kImages].add_(labels.size(0));
  sums_[kLoss].add_(loss.detach().to(at::kDouble), weight);
  std::int64_t i = kFirstMetric;
  for (const auto& [name, metric] : Metrics().entries())
    sums_[i++].add_(metric(scores.detach(), labels));
  CountPairs(scores.detach(), labels, classes_, sums_.slice(0, i));
}

Evaluation MetricSums::Take(World& world) {
  at::Tensor all = all_;
  if (!replicated()) {
    // A rank without the model's last stage has added nothing.
    all = sums_.defined() ? sums_.clone() : Zeros(world.device());
    world.AllReduceSum(all);
  }
  const at::Tensor values = world.ToHost(all).clone();
  SetValues({});
  const auto of_all_ranks = values.accessor<double, 1>();
  Evaluation totals{.images = static_cast<std::int64_t>(of_all_ranks[kImages])};
  if (totals.images > 0) totals.loss = of_all_ranks[kLoss] / static_cast<double>(totals.images);
  std::int64_t i = kFirstMetric;
  for (const auto& [name, metric] : Metrics().entries()) totals.sums[name] = of_all_ranks[i++];
  totals.by_class = MakeClassCounts(values.const_data_ptr<double>() + i, classes_);
  return totals;
}

void MetricSums::Replicate(at::Device device) {
  if (!sums_.defined()) sums_ = Zeros(device);
  if (!all_.defined()) all_ = Zeros(device);
}

std::size_t MetricSums::NoteBytes() {
  return static_cast<std::size_t>(FirstCount()) * sizeof(double);
}

void MetricSums::Send(World& world, ShmNotes* notes) {
  coming_ = sums_.clone();
  if (world.size() == 1) return;
  if (notes != nullptr) {
    std::memcpy(notes->own(), coming_.const_data_ptr(), NoteBytes());
    return;
  }
  std::vector<at::Tensor> tensors{coming_};
  work_ = world.group()->allreduce(tensors);
}

void MetricSums::Await(const World& world, const ShmNotes* notes) {
  if (!coming_.defined()) return;
  if (work_) ddprun::Await(world, work_);
  if (notes != nullptr) {
    // In the order of the ranks, so that all come to the same.
    auto* sums = coming_.mutable_data_ptr<double>();
    std::fill_n(sums, coming_.numel(), 0.0);
    for (int rank = 0; rank < notes->ranks(); ++rank) {
      for (std::int64_t i = 0; i < coming_.numel(); ++i) {
        double value = 0;
        std::memcpy(&value, notes->of(rank) + static_cast<std::size_t>(i) * sizeof value,
                    sizeof value);
        sums[i] += value;
      }
    }
  }
  all_.add_(coming_);
  Discard();
}

void MetricSums::Discard() {
  work_.reset();
  coming_.reset();  // a group that is about to end may still write there
  if (sums_.defined()) sums_.zero_();
}

at::Tensor MetricSums::Values() const {
  const at::Tensor& values = replicated() ? all_ : sums_;
  return values.defined() ? values.clone() : at::Tensor();
}

void MetricSums::SetValues(const at::Tensor& values) {
  Discard();
  if (values.defined() && !sums_.defined()) sums_ = at::zeros_like(values);
  const at::Tensor& own = replicated() ? all_ : sums_;
  if (!own.defined()) return;
  if (values.defined())
    own.copy_(values);
  else
    own.zero_();
}

}  // namespace ddprun
