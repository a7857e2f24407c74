// SPDX-License-Identifier: Apache-2.0
// How a device makes its steps: the first ones, in which libraries choose their kernels and DDP its
// buckets, are queued operation by operation. Then, on a GPU, a step is recorded as a CUDA graph
// once, and replayed by one call. The recordings are dropped when the round ends.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "ddprun/detail/interrupt.h"
#include "ddprun/detail/world_access.h"
#include "ddprun/world.h"
#include "worker/library/accelerator/accelerator.h"
#include "worker/train/step/run_ahead_limit.h"

namespace ddprun {

// What a step leaves on the device.
struct StepOutcome {
  at::Tensor loss;
  at::Tensor gradient_norm;  // undefined without clipping
};

class StepRecorder {
 public:
  // Steps before a graph is captured. c10d::Reducer takes times with events in its first ten
  // iterations, which cannot be captured.
  static constexpr std::int64_t kWarmUpAlone = 3;
  static constexpr std::int64_t kWarmUpOfSeveral = 11;
  // Steps before the graph of each further forward of the model is captured.
  static constexpr std::int64_t kWarmUpAgain = 1;

  // For what is left on the device of a step that hangs.
  static constexpr std::chrono::seconds kAbortLimit = WorldAccess::kAbortLimit;

  // Number of a step whose outcome is discarded: it may take as long as the set-up.
  static constexpr std::int64_t kDummy = 0;

  // `make_graph` belongs to this recorder alone, see Accelerator::GraphMaker(). Without it nothing
  // is recorded. Without `limit` nothing checks that the device goes on.
  explicit StepRecorder(World& world, MakeStepGraph make_graph = nullptr,
                        std::optional<RunAheadLimit> limit = std::nullopt);

  // The model's forward is this one from now on (ImageModel::Advance()). Each has a recording of
  // its own, which stays.
  void UseForward(std::int64_t forward);

  // Whether the next step of full batches is a replay.
  bool IsReplayed() const;

  // Such a step, where none is recorded for the current forward (is_graph()). Throws
  // std::runtime_error if it cannot be recorded.
  void Record(const std::function<StepOutcome()>& step);
  // Makes the step that is recorded. What the outcome holds is written anew by each replay. Throws
  // RoundOver.
  StepOutcome Replay();

  // A step of full batches was queued operation by operation.
  void CountQueued();

  // The step with this number has been queued. Throws StepHangs if an earlier one does not end.
  void EndStep(std::int64_t number);

  // Before anything is read from the device: waits for the steps that it has been given, where no
  // watchdog sees that one hangs. Throws as EndStep() does. Where the world can be interrupted, all
  // steps are complete when this returns.
  void AwaitQueued();

  // Whether the next step of full batches is as fast as all that follow: a replay, if anything is
  // recorded at all.
  bool is_warm() const;

  // Whether steps of full batches are replays of a CUDA graph by now.
  bool is_graph() const { return forward_->second.graph != nullptr; }

 private:
  // Shared with the thread that takes the graphs away when the round ends: NCCL ends no collectives
  // as long as there is a graph of them.
  class Graphs;

  // A forward's graph, and its steps that were queued before.
  struct Recording {
    StepGraph* graph = nullptr;  // of graphs_; null until it is captured
    StepOutcome outcome;         // which each replay writes anew
    std::int64_t queued = 0;     // steps of full batches
  };

  std::chrono::milliseconds Limit() const;
  // A step hangs on the device: aborts the collectives that it waits in.
  void Abort();

  World& world_;
  const MakeStepGraph make_graph_;
  const std::shared_ptr<Graphs> graphs_;
  Interrupt::Registration losing_graphs_;
  std::optional<RunAheadLimit> limit_;
  std::map<std::int64_t, Recording> recordings_;  // by forward
  std::map<std::int64_t, Recording>::iterator forward_;
  std::int64_t queued_ = 0;  // steps of full batches, of all forwards
  bool dummy_ = false;       // the latest step was one
};

}  // namespace ddprun
