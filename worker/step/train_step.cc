// SPDX-License-Identifier: Apache-2.0
#include "worker/step/train_step.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "ddprun/interrupt.h"
#include "worker/base/background_task.h"
#include "worker/base/first_line.h"
#include "worker/optimizer/gradient_clip.h"

namespace ddprun {
namespace {

std::vector<at::Tensor> GradientsOf(const NamedTensors& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

// A capture that fails leaves LibTorch's allocator in the belief that it goes on for ever, where a
// stream of NCCL's was not joined: this process cannot go on in another round.
[[noreturn]] void ThrowInterrupted() {
  throw OwnError(
      "the round ended while the step was captured as a CUDA graph, after which this process "
      "cannot use the GPU any more; it ends, and its place is taken by another one");
}

}  // namespace

class TrainStep::Graphs {
 public:
  // Throws RoundOver if they were taken away.
  StepGraph* Add(std::unique_ptr<StepGraph> graph) {
    const std::lock_guard lock(mutex_);
    if (gone_) throw RoundOver();
    return graphs_.emplace_back(std::move(graph)).get();
  }
  void Replay(StepGraph& graph) {
    const std::lock_guard lock(mutex_);
    if (gone_) throw RoundOver();
    graph.Replay();
  }
  // Destroys them all, which may wait until the device has left them.
  void TakeAway() {
    std::vector<std::unique_ptr<StepGraph>> graphs;
    const std::lock_guard lock(mutex_);
    gone_ = true;
    graphs.swap(graphs_);
  }

 private:
  std::mutex mutex_;
  bool gone_ = false;
  std::vector<std::unique_ptr<StepGraph>> graphs_;
};

TrainStep::TrainStep(StepParts parts, std::unique_ptr<BatchFeed> feed, MakeStepGraph make_graph,
                     std::optional<RunAheadLimit> limit)
    : parts_(std::move(parts)),
      feed_(std::move(feed)),
      make_graph_(std::move(make_graph)),
      graphs_(std::make_shared<Graphs>()),
      limit_(std::move(limit)),
      rate_(RateOn(parts_.world.device(), 0)),
      forward_(recordings_.try_emplace(0).first) {
  if (!make_graph_ || !parts_.world.interrupt()) return;
  losing_graphs_ =
      parts_.world.interrupt()->Register([graphs = graphs_, device = parts_.world.device()] {
        std::thread([graphs, device] {
          if (device.is_cuda()) LoadAccelerator().SetDevice(device.index());
          graphs->TakeAway();
        }).detach();
      });
}

void TrainStep::BeginEpoch(const EpochPlan& plan, std::uint64_t epoch) {
  plan_ = &plan;
  feed_->BeginEpoch(plan, epoch);
}

TrainStep::Result TrainStep::Make(const StepBatches& batches, double rate, std::int64_t number) {
  const Shares shares = SharesOf(batches);
  Result result{
      .samples = shares.samples,
      .own_samples = std::accumulate(shares.own.begin(), shares.own.end(), std::int64_t{0})};
  const auto load = [&](std::int64_t i) {
    parts_.calls.enter(StepSection::kData);
    result.data_wait_seconds += feed_->Load(i);
  };
  feed_->BeginStep(batches, shares.own);
  rate_.fill_(rate);
  if (parts_.casts != nullptr) parts_.casts->RefreshIfChanged();
  Recording& recording = forward_->second;
  const bool full = IsFull(batches, shares);
  if (make_graph_ && full && (recording.graph || CanCapture())) {
    for (std::int64_t i = 0; i < batches.count; ++i) load(i);
    if (!recording.graph) Capture(shares);
    parts_.calls.enter(StepSection::kForward);
    graphs_->Replay(*recording.graph);
    latest_ = recording.outcome;
    // The next replay writes there again.
    result.loss = recording.outcome.loss.clone();
  } else {
    latest_ = Queue(shares, load);
    result.loss = latest_.loss;
    recording.queued += full;
    queued_ += full;
  }
  dummy_ = number == kDummy;
  if (limit_) Guard([&](auto limit) { limit_->EndStep(number, limit); });
  return result;
}

void TrainStep::AwaitQueued() {
  if (limit_) Guard([&](auto limit) { limit_->AwaitAll(limit); });
}

void TrainStep::Guard(const std::function<void(std::chrono::milliseconds limit)>& wait) {
  try {
    wait(dummy_ ? parts_.world.timeout() : parts_.world.step_timeout());
  } catch (const StepHangs&) {
    // Where there is an interrupt, leaving the round triggers it, and that aborts.
    if (!parts_.world.interrupt()) Abort();
    throw;
  }
}

TrainStep::Shares TrainStep::SharesOf(const StepBatches& batches) const {
  Shares shares;
  for (std::int64_t i = 0; i < batches.count; ++i) {
    shares.samples += plan_->GlobalSize(batches.first + i);
    shares.own.push_back(plan_->OwnSize(batches.first + i));
  }
  for (const std::int64_t own : shares.own) {
    shares.weights.push_back(static_cast<double>(own * parts_.strategy.shard().world_size) /
                             static_cast<double>(shares.samples));
  }
  return shares;
}

TrainStep::Outcome TrainStep::Queue(const Shares& shares,
                                    const std::function<void(std::int64_t)>& load) {
  Outcome outcome;
  const auto count = static_cast<std::int64_t>(shares.own.size());
  for (std::int64_t i = 0; i < count; ++i) {
    load(i);
    const BatchFeed::Images batch = feed_->Get(i);
    const double weight = shares.weights[static_cast<std::size_t>(i)];
    const at::Tensor loss = parts_.strategy.Run({.images = batch.images,
                                                 .labels = batch.labels,
                                                 .weight = weight,
                                                 .scale = parts_.scaler.scale()},
                                                /*first=*/i == 0, /*last=*/i + 1 == count);
    if (parts_.casts != nullptr) parts_.casts->GatherGradients();
    const at::Tensor share = weight == 1 ? loss : loss * weight;
    outcome.loss = i == 0 ? share : outcome.loss + share;
  }
  parts_.calls.on_loss(outcome.loss);
  parts_.calls.enter(StepSection::kOptimizer);
  Update(outcome);
  return outcome;
}

// With fp16 an overflow on any rank skips the step.
void TrainStep::Update(Outcome& outcome) {
  const std::vector<at::Tensor> gradients = GradientsOf(parts_.parameters);
  at::Tensor overflow = parts_.scaler.Unscale(gradients);
  if (overflow.defined()) {
    parts_.strategy.SumOverModel(overflow);
    overflow.clamp_max_(1);
  }
  if (parts_.config.clip_norm > 0) {
    const at::Tensor squared = SquaredNorm(gradients, parts_.world.device());
    parts_.strategy.SumOverModel(squared);
    outcome.gradient_norm = squared.sqrt();
    ClipToNorm(gradients, outcome.gradient_norm, parts_.config.clip_norm);
  }
  parts_.calls.before_update();
  parts_.optimizer.Step(rate_, overflow);
  if (parts_.casts != nullptr) parts_.casts->AfterStep();
  parts_.scaler.Update();
  if (parts_.average != nullptr) parts_.average->Update(overflow);
}

bool TrainStep::IsFull(const StepBatches& batches, const Shares& shares) const {
  const Config& config = parts_.config;
  return batches.count == config.accumulate &&
         shares.samples == batches.count * config.batch_size * parts_.strategy.shard().world_size &&
         std::all_of(shares.own.begin(), shares.own.end(),
                     [&](std::int64_t own) { return own == config.batch_size; });
}

bool TrainStep::CanCapture() const {
  return queued_ >= (parts_.world.size() == 1 ? kWarmUpAlone : kWarmUpOfSeveral) &&
         forward_->second.queued >= kWarmUpAgain;
}

void TrainStep::Capture(const Shares& shares) {
  parts_.world.Synchronize();
  Recording& recording = forward_->second;
  std::unique_ptr<StepGraph> graph = make_graph_();
  const auto loaded = [](std::int64_t) {};
  try {
    graph->Capture(
        [this, &recording, shares, loaded] { recording.outcome = Queue(shares, loaded); });
  } catch (const RoundOver&) {
    ThrowInterrupted();
  } catch (const c10::Error& error) {
    if (parts_.world.interrupt() && parts_.world.interrupt()->triggered()) ThrowInterrupted();
    throw OwnError("the step cannot be captured as a CUDA graph: " + FirstLine(error) +
                   "; pass --no-cuda-graph");
  }
  recording.graph = graphs_->Add(std::move(graph));
}

void TrainStep::UseForward(std::int64_t forward) {
  forward_ = recordings_.try_emplace(forward).first;
}

bool TrainStep::is_warm() const {
  const Recording& recording = forward_->second;
  return make_graph_ ? recording.graph != nullptr : recording.queued > 0;
}

// ncclCommAbort() returns only when no graph is left that holds the communicator's collectives
// (NCCL 2.28 src/init.cc, commDestroySync(), which waits for localPersistentRefs). The graphs are
// destroyed when the device has left them, which the abort makes it do. All that may block, so it
// is done by a thread that owns what it needs, and that is waited for for a short time only.
void TrainStep::Abort() {
  const at::Device device = parts_.world.device();
  BackgroundTask aborting("the end of the collectives", kAbortLimit,
                          [graphs = graphs_, device, group = parts_.world.group()] {
                            if (device.is_cuda()) LoadAccelerator().SetDevice(device.index());
                            graphs->TakeAway();
                            group->getDefaultBackend()->abort();
                          });
  try {
    aborting.Wait();
  } catch (const std::exception&) {
    // The process ends without it.
  }
}

double TrainStep::gradient_norm() const {
  return latest_.gradient_norm.defined() ? latest_.gradient_norm.item<double>() : 0;
}

}  // namespace ddprun
