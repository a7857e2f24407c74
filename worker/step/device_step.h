// SPDX-License-Identifier: Apache-2.0
// A step that a device does alone: forward, backward with the all-reduce, overflows, clipping, the
// optimizer and the average are queued without a question to it, and what changes from step to step
// (learning rate, batches) lies in its memory. So the whole step can be a CUDA graph: recorded
// once, then started by one call.
//
// Steps of other than full batches, and the first ones, in which libraries choose their kernels and
// DDP its buckets, are queued operation by operation; their numbers are the same.
#pragma once

#include <memory>
#include <optional>

#include "worker/distributed/accelerator.h"
#include "worker/step/batch_feed.h"
#include "worker/step/run_ahead_limit.h"
#include "worker/step/training_step.h"

namespace ddprun {

class DeviceStep : public TrainingStep {
 public:
  // Steps before a graph is captured. c10d::Reducer takes times with events in its first ten
  // iterations, which cannot be captured.
  static constexpr std::int64_t kWarmUpAlone = 3;
  static constexpr std::int64_t kWarmUpOfSeveral = 11;
  // And after the model's forward has changed.
  static constexpr std::int64_t kWarmUpAgain = 1;

  using MakeGraph = std::function<std::unique_ptr<StepGraph>()>;

  // Without `make_graph` each step is queued operation by operation. Without `run_ahead_limit`
  // nobody watches whether the device goes on.
  DeviceStep(StepParts parts, std::unique_ptr<BatchFeed> feed, MakeGraph make_graph,
             std::optional<RunAheadLimit> run_ahead_limit = std::nullopt);

  void BeginEpoch(const EpochPlan& plan, std::uint64_t epoch) override;
  // Also throws std::runtime_error if the step cannot be captured, or an earlier one does not end.
  Result Make(const StepBatches& batches, double rate) override;
  void ForwardChanged() override;
  double gradient_norm() const override;
  bool is_graph() const override { return graph_ != nullptr; }

 private:
  // What a step leaves on the device.
  struct Outcome {
    at::Tensor loss;
    at::Tensor gradient_norm;  // undefined without clipping
  };

  // Whether a graph fits the step, and its turn has come.
  bool TakesGraph(const StepBatches& batches, const StepShares& shares) const;
  void CaptureWith(const StepShares& shares);
  Outcome Queue(const StepShares& shares);

  const StepParts parts_;
  const std::unique_ptr<BatchFeed> feed_;
  const MakeGraph make_graph_;
  std::optional<RunAheadLimit> run_ahead_limit_;
  const at::Tensor rate_;  // float scalar
  const EpochPlan* plan_ = nullptr;
  std::int64_t warm_up_;              // steps that are left of it
  std::unique_ptr<StepGraph> graph_;  // null until one is captured
  Outcome graph_outcome_;             // which each replay writes anew
  Outcome latest_;
};

}  // namespace ddprun
