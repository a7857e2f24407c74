// SPDX-License-Identifier: Apache-2.0
#include "worker/train/parallel/local_pipeline.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <queue>

#include "worker/train/parallel/precision.h"

namespace ddprun {

LocalPipeline::LocalPipeline(ImageModel& model, const PipelinePlan& plan,
                             const std::vector<std::size_t>& cuts, std::vector<at::Device> devices,
                             StepOptions options)
    : model_(model),
      plan_(plan),
      devices_(std::move(devices)),
      options_(std::move(options)),
      stages_(CutIntoStages(model, cuts)) {
  for (std::size_t i = 0; i < stages_.size(); ++i) stages_[i]->to(devices_[i]);
}

NamedTensors LocalPipeline::Parameters() const {
  NamedTensors parameters;
  for (const auto& stage : stages_) {
    for (const auto& entry : stage->own_parameters()) parameters.push_back(entry);
  }
  return parameters;
}

at::Tensor LocalPipeline::Forward(at::Tensor images) {
  for (std::size_t i = 0; i < stages_.size(); ++i)
    images = stages_[i]->forward(images.to(devices_[i], /*non_blocking=*/true));
  return images;
}

at::Tensor LocalPipeline::ForwardBackward(const Batch& batch, bool first, bool) {
  if (first) {
    for (const auto& entry : Parameters()) entry.second.mutable_grad().reset();
  }
  const std::int64_t samples = batch.labels.size(0);
  const auto sizes = MicroBatchSizes(samples, plan_.micro_batches);
  const auto images = batch.images.split_with_sizes(sizes);
  const auto labels = batch.labels.to(devices_.back()).split_with_sizes(sizes);
  const at::Tensor scale = batch.scale.defined() ? batch.scale.to(devices_.back()) : at::Tensor();
  // Micro-batches between forward and backward, and how many there may be (actions.h).
  std::queue<at::Tensor> held;
  const std::size_t held_max = plan_.schedule == PipelineSchedule::kGpipe
                                   ? sizes.size()
                                   : static_cast<std::size_t>(plan_.stages);
  const auto backward = [&] {
    options_.events.OnSection(StepSection::kBackward);
    held.front().backward();
    held.pop();
  };
  at::Tensor loss = at::zeros({}, at::TensorOptions(devices_.back()).dtype(at::kFloat));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (held.size() == held_max) backward();
    options_.events.OnSection(StepSection::kForward);
    const Autocast autocast(devices_.back(), options_.autocast);
    const at::Tensor scores = Forward(images[i]);
    const at::Tensor mean = options_.loss(scores, labels[i]);
    options_.on_scores(scores, labels[i], mean);
    // Each mean counts by its samples, so that the sum is the batch's mean.
    const double share = static_cast<double>(sizes[i]) / static_cast<double>(samples);
    loss += mean.detach() * share;
    const at::Tensor part = mean * (share * batch.weight);
    held.push(scale.defined() ? part * scale : part);
  }
  while (!held.empty()) backward();
  return loss.to(batch.images.device());
}

at::Tensor LocalPipeline::Scores(const at::Tensor& images) {
  const torch::NoGradGuard no_grad;
  const Autocast autocast(devices_.back(), options_.autocast);
  std::vector<at::Tensor> scores;
  for (const at::Tensor& some :
       images.split_with_sizes(MicroBatchSizes(images.size(0), plan_.micro_batches)))
    scores.push_back(Forward(some));
  return at::cat(scores).to(images.device());
}

}  // namespace ddprun
