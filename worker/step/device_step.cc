// SPDX-License-Identifier: Apache-2.0
#include "worker/step/device_step.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "worker/base/first_line.h"
#include "worker/optimizer/gradient_clip.h"

namespace ddprun {

DeviceStep::DeviceStep(StepParts parts, std::unique_ptr<BatchFeed> feed, MakeGraph make_graph,
                       std::optional<RunAheadLimit> run_ahead_limit)
    : parts_(std::move(parts)),
      feed_(std::move(feed)),
      make_graph_(std::move(make_graph)),
      run_ahead_limit_(std::move(run_ahead_limit)),
      rate_(at::zeros({}, at::TensorOptions(parts_.world.device()).dtype(at::kFloat))),
      warm_up_(parts_.world.size() == 1 ? kWarmUpAlone : kWarmUpOfSeveral) {
  parts_.scaler.KeepOn(parts_.world.device());
}

void DeviceStep::BeginEpoch(const EpochPlan& plan, std::uint64_t epoch) {
  plan_ = &plan;
  feed_->BeginEpoch(plan, epoch);
}

TrainingStep::Result DeviceStep::Make(const StepBatches& batches, double rate) {
  const StepShares shares = SharesOf(*plan_, batches, parts_.strategy.shard().world_size);
  Result result{.samples = shares.samples, .own_samples = shares.OwnSum()};
  parts_.enter(StepSection::kData);
  std::vector<std::int64_t> sizes = shares.own;
  // A rank that nothing is left for goes along with a sample that does not count.
  for (std::int64_t& size : sizes) size = std::max<std::int64_t>(size, 1);
  result.data_wait_seconds = feed_->Load(batches, sizes);
  parts_.before_update();
  rate_.fill_(rate);
  if (TakesGraph(batches, shares)) {
    if (!graph_) CaptureWith(shares);
    parts_.enter(StepSection::kForward);
    graph_->Replay();
    latest_ = graph_outcome_;
    // The next replay writes there again.
    result.loss = graph_outcome_.loss.clone();
  } else {
    latest_ = Queue(shares);
    result.loss = latest_.loss;
    --warm_up_;
  }
  if (run_ahead_limit_) run_ahead_limit_->EndStep();
  return result;
}

bool DeviceStep::TakesGraph(const StepBatches& batches, const StepShares& shares) const {
  if (!make_graph_ || (!graph_ && warm_up_ > 0)) return false;
  const Config& config = parts_.config;
  return batches.count == config.accumulate &&
         shares.samples == batches.count * config.batch_size * parts_.strategy.shard().world_size &&
         std::all_of(shares.own.begin(), shares.own.end(),
                     [&](std::int64_t own) { return own == config.batch_size; });
}

void DeviceStep::CaptureWith(const StepShares& shares) {
  parts_.world.Synchronize();
  std::unique_ptr<StepGraph> graph = make_graph_();
  try {
    graph->Capture([this, shares] { graph_outcome_ = Queue(shares); });
  } catch (const c10::Error& error) {
    throw std::runtime_error("the step cannot be captured as a CUDA graph: " + FirstLine(error) +
                             "; pass --no-cuda-graph");
  }
  graph_ = std::move(graph);
}

void DeviceStep::ForwardChanged() {
  if (!graph_) return;
  parts_.world.Synchronize();
  latest_ = graph_outcome_ = {};
  graph_.reset();
  warm_up_ = kWarmUpAgain;
}

DeviceStep::Outcome DeviceStep::Queue(const StepShares& shares) {
  Outcome outcome;
  const std::size_t count = shares.own.size();
  for (std::size_t i = 0; i < count; ++i) {
    const BatchFeed::Images batch = feed_->Get(static_cast<std::int64_t>(i));
    const double weight = shares.weights[i];
    const at::Tensor loss = parts_.strategy.Run({.images = batch.images,
                                                 .labels = batch.labels,
                                                 .weight = weight,
                                                 .scale = parts_.scaler.ScaleOnDevice()},
                                                /*scale=*/1, /*first=*/i == 0,
                                                /*last=*/i + 1 == count);
    const at::Tensor share = weight == 1 ? loss : loss * weight;
    outcome.loss = i == 0 ? share : outcome.loss + share;
  }
  parts_.enter(StepSection::kOptimizer);
  const std::vector<at::Tensor> gradients = GradientsOf(parts_.parameters);
  const at::Tensor overflow = parts_.scaler.UnscaleOnDevice(gradients);
  if (parts_.config.clip_norm > 0)
    outcome.gradient_norm = ClipOnDevice(gradients, parts_.config.clip_norm);
  parts_.optimizer.StepOnDevice(rate_, overflow);
  parts_.scaler.UpdateOnDevice();
  if (parts_.average != nullptr) {
    if (overflow.defined())
      parts_.average->UpdateUnless(overflow);
    else
      parts_.average->Update();
  }
  return outcome;
}

double DeviceStep::gradient_norm() const {
  return latest_.gradient_norm.defined() ? latest_.gradient_norm.item<double>() : 0;
}

}  // namespace ddprun
