// SPDX-License-Identifier: Apache-2.0
#include "worker/train/parallel/data_parallel.h"

#include <torch/csrc/autograd/grad_mode.h>

#include <optional>

#include "worker/library/base/unique_tensors.h"
#include "worker/train/parallel/precision.h"

namespace ddprun {
namespace {

DistributedDataParallel::Options AverageOf(const StepOptions& options, const ImageModel& model) {
  DistributedDataParallel::Options average = options.average;
  average.broadcast_buffers = model.reads_buffers_in_training();
  return average;
}

}  // namespace

DataParallel::DataParallel(World& world, ImageModel& model, StepOptions options)
    : world_(world),
      model_(model),
      options_(std::move(options)),
      ddp_(world, model, AverageOf(options_, model)) {}

at::ScalarType DataParallel::image_type() const {
  return model_.begins_in_autocast() ? options_.autocast.value_or(at::kFloat) : at::kFloat;
}

NamedTensors DataParallel::Parameters() const {
  NamedTensors parameters;
  TensorSet seen;
  for (const auto& item : model_.named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second)
      parameters.emplace_back(item.key(), item.value());
  }
  return parameters;
}

std::vector<at::Tensor> DataParallel::State() const { return UniqueState(model_); }

at::Tensor DataParallel::ForwardBackward(const Batch& batch, bool first, bool last) {
  options_.events.OnSection(StepSection::kForward);
  if (first) ddp_.ZeroGrad();
  at::Tensor loss;
  {
    const Autocast autocast(world_.device(), options_.autocast);
    std::optional<DistributedDataParallel::NoSyncScope> no_sync;
    if (!last) no_sync.emplace(ddp_);
    const at::Tensor scores = ddp_.Forward([&] { return model_.forward(batch.images); });
    loss = options_.loss(scores, batch.labels);
    if (batch.weight != 0) options_.on_scores(scores, batch.labels, loss);
  }
  if (last) options_.events.AfterForward();
  options_.events.OnSection(StepSection::kBackward);
  at::Tensor scaled = batch.weight == 1 ? loss : loss * batch.weight;
  if (batch.scale.defined()) scaled = scaled * batch.scale;
  if (last)
    OnGradientsComputed(scaled, [this] { options_.events.OnSection(StepSection::kGradients); });
  scaled.backward();
  if (last) ddp_.EndBackward();
  return loss.detach();
}

void DataParallel::Train() { model_.train(); }

void DataParallel::Evaluate() {
  BroadcastBuffers(world_, model_);
  model_.eval();
}

at::Tensor DataParallel::Scores(const at::Tensor& images) {
  const torch::NoGradGuard no_grad;
  const Autocast autocast(world_.device(), options_.autocast);
  return model_.forward(images);
}

}  // namespace ddprun
