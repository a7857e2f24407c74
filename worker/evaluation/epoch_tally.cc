// SPDX-License-Identifier: Apache-2.0
#include "worker/evaluation/epoch_tally.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

namespace ddprun {

void EpochTally::Add(const at::Tensor& scores, const at::Tensor& labels,
                     const at::Tensor& mean_loss) {
  const torch::NoGradGuard no_grad;
  const std::int64_t images = labels.size(0);
  if (images == 0) return;
  if (!sums_.defined())
    sums_ = at::zeros({3}, at::TensorOptions(scores.device()).dtype(at::kDouble));
  sums_[0].add_(mean_loss.detach().to(at::kDouble), images);
  sums_[1].add_((scores.detach().argmax(1) == labels).sum());
  sums_[2].add_(images);
}

EpochTally::Totals EpochTally::Take(World& world) {
  // A rank without the model's last stage has counted nothing.
  at::Tensor sums = at::zeros({3}, at::TensorOptions(world.device()).dtype(at::kDouble));
  if (sums_.defined()) {
    sums.copy_(sums_);
    sums_.zero_();
  }
  world.AllReduceSum(sums);
  const at::Tensor all = sums.cpu();
  Totals totals{.images = static_cast<std::int64_t>(all[2].item<double>()),
                .correct = static_cast<std::int64_t>(all[1].item<double>())};
  if (totals.images > 0) totals.loss = all[0].item<double>() / static_cast<double>(totals.images);
  return totals;
}

}  // namespace ddprun
