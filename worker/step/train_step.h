// SPDX-License-Identifier: Apache-2.0
// A step of a training: batches, forward, backward with the all-reduce, overflows, clipping, the
// optimizer and the average. All that changes from step to step (learning rate, scale, batches)
// lies in the device's memory, and the host never waits for it. So on a GPU the whole step can be
// recorded as a CUDA graph once, and then started by one call.
//
// Steps of other than full batches, and the first ones, in which libraries choose their kernels and
// DDP its buckets, are queued operation by operation, with the same numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ddprun/interrupt.h"
#include "ddprun/world.h"
#include "worker/accelerator/accelerator.h"
#include "worker/config/config.h"
#include "worker/loader/epoch_plan.h"
#include "worker/metrics/step_clock.h"
#include "worker/optimizer/grad_scaler.h"
#include "worker/optimizer/optimizer.h"
#include "worker/optimizer/weight_average.h"
#include "worker/parallel/cast_weights.h"
#include "worker/parallel/parallel_strategy.h"
#include "worker/step/batch_feed.h"
#include "worker/step/run_ahead_limit.h"

namespace ddprun {

struct StepCalls {
  // With a step's loss, before it changes anything: may throw. Not called where a graph is
  // replayed.
  std::function<void(const at::Tensor& loss)> on_loss;
  // Before parameters, optimizer state or average change on a CPU.
  std::function<void()> before_update;
  std::function<void(StepSection)> enter;
};

// All must outlive the step.
struct StepParts {
  const Config& config;
  World& world;
  ParallelStrategy& strategy;
  const NamedTensors& parameters;  // that the optimizer has
  Optimizer& optimizer;
  GradScaler& scaler;
  WeightAverage* average = nullptr;  // null: none is kept
  CastWeights* casts = nullptr;      // null: forward casts, or needs no casts
  StepCalls calls;
};

class TrainStep {
 public:
  // Steps before a graph is captured. c10d::Reducer takes times with events in its first ten
  // iterations, which cannot be captured.
  static constexpr std::int64_t kWarmUpAlone = 3;
  static constexpr std::int64_t kWarmUpOfSeveral = 11;
  // Steps before the graph of each further forward of the model is captured.
  static constexpr std::int64_t kWarmUpAgain = 1;

  // For what is left on the device of a step that hangs.
  static constexpr std::chrono::seconds kAbortLimit = World::kAbortLimit;

  struct Result {
    at::Tensor loss;               // mean over this rank's samples, on the device
    std::int64_t samples = 0;      // of all ranks
    std::int64_t own_samples = 0;  // of this one
    double data_wait_seconds = 0;
  };

  // `make_graph` belongs to this step alone, see Accelerator::GraphMaker(). Without it each step is
  // queued operation by operation. Without `limit` nothing checks that the device goes on.
  TrainStep(StepParts parts, std::unique_ptr<BatchFeed> feed, MakeStepGraph make_graph = nullptr,
            std::optional<RunAheadLimit> limit = std::nullopt);

  // Steps are made of this plan's batches from now on; it must live until the next call.
  void BeginEpoch(const EpochPlan& plan, std::uint64_t epoch);

  // Forward, backward and update with this learning rate. `number` is the step's in the training,
  // from 1 on, or kDummy. Throws c10::Error if another rank has ended, DataError, and
  // std::runtime_error if the step cannot be captured or an earlier one does not end.
  Result Make(const StepBatches& batches, double rate, std::int64_t number);

  // Number of a step whose outcome is discarded: it may take as long as the set-up.
  static constexpr std::int64_t kDummy = 0;

  // Before anything is read from the device: waits for the steps that it has been given, where no
  // watchdog sees that one hangs. Throws as Make() does. Where the world can be interrupted, all
  // steps are complete when this returns.
  void AwaitQueued();

  // The model's forward is this one from now on (ImageModel::Advance()). Each has a graph of its
  // own, which stays.
  void UseForward(std::int64_t forward);

  // Whether the next step of full batches is as fast as all that follow: a replay, if a graph is
  // captured at all.
  bool is_warm() const;

  // Norm in the latest step, where --clip-norm asks for it. Waits for the device.
  double gradient_norm() const;

  // Whether steps of full batches are replays of a CUDA graph by now.
  bool is_graph() const { return forward_->second.graph != nullptr; }

  // Shared with the thread that takes the graphs away when the round ends: NCCL ends no collectives
  // as long as there is a graph of them.
  class Graphs;

 private:
  // The samples of a step's batches, and the factors of the batches' losses with which their sum,
  // averaged over the data-parallel ranks, is the mean over all of the step's samples.
  struct Shares {
    std::vector<std::int64_t> own;  // samples of this rank in each batch
    std::vector<double> weights;
    std::int64_t samples = 0;  // of all ranks
  };
  // What a step leaves on the device.
  struct Outcome {
    at::Tensor loss;
    at::Tensor gradient_norm;  // undefined without clipping
  };

  // A forward's graph, and its steps that were queued before.
  struct Recording {
    StepGraph* graph = nullptr;  // of graphs_; null until it is captured
    Outcome outcome;             // which each replay writes anew
    std::int64_t queued = 0;     // steps of full batches
  };

  Shares SharesOf(const StepBatches& batches) const;
  // Whether a graph can be of such a step.
  bool IsFull(const StepBatches& batches, const Shares& shares) const;
  // Whether enough steps of the current forward were queued.
  bool CanCapture() const;
  void Capture(const Shares& shares);
  // Calls wait(limit); if a step hangs on the device, aborts the collectives that it waits in.
  void Guard(const std::function<void(std::chrono::milliseconds limit)>& wait);
  void Abort();
  // `load`: called before each batch with its number.
  Outcome Queue(const Shares& shares, const std::function<void(std::int64_t)>& load);
  void Update(Outcome& outcome);

  const StepParts parts_;
  const std::unique_ptr<BatchFeed> feed_;
  const MakeStepGraph make_graph_;
  const std::shared_ptr<Graphs> graphs_;
  Interrupt::Registration losing_graphs_;
  std::optional<RunAheadLimit> limit_;
  at::Tensor rate_;  // scalar on the device
  const EpochPlan* plan_ = nullptr;
  std::map<std::int64_t, Recording> recordings_;  // by forward
  std::map<std::int64_t, Recording>::iterator forward_;
  std::int64_t queued_ = 0;  // steps of full batches, of all forwards
  bool dummy_ = false;       // the latest step was one
  Outcome latest_;
};

}  // namespace ddprun
