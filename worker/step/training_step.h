// SPDX-License-Identifier: Apache-2.0
// What one step of a training does, from its batches to the changed parameters: the trainer's seam
// between steps that the host leads (host_step) and steps that a device does alone (device_step).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "worker/config/config.h"
#include "worker/data/dataset.h"
#include "worker/distributed/world.h"
#include "worker/loader/epoch_plan.h"
#include "worker/loader/loader.h"
#include "worker/metrics/step_clock.h"
#include "worker/optimizer/grad_scaler.h"
#include "worker/optimizer/optimizer.h"
#include "worker/optimizer/weight_average.h"
#include "worker/parallel/parallel_strategy.h"

namespace ddprun {

// A step's batches: `count` of the epoch's from `first` on.
struct StepBatches {
  std::int64_t first = 0;
  std::int64_t count = 1;
};

// All must outlive the step.
struct StepParts {
  const Config& config;
  const Dataset& data;
  World& world;
  ParallelStrategy& strategy;
  const NamedTensors& parameters;  // that the optimizer has
  Optimizer& optimizer;
  GradScaler& scaler;
  WeightAverage* average = nullptr;  // null: none is kept
  // With a step's loss, before it changes anything: may throw.
  std::function<void(const at::Tensor& loss)> on_loss;
  std::function<void()> before_update;  // before parameters, optimizer state or average change
  std::function<void(StepSection)> enter;
};

class TrainingStep {
 public:
  struct Result {
    at::Tensor loss;               // mean over this rank's samples, on the device
    std::int64_t samples = 0;      // of all ranks
    std::int64_t own_samples = 0;  // of this one
    double data_wait_seconds = 0;
  };

  virtual ~TrainingStep() = default;

  // Steps are made of this plan's batches from now on; it must live until the next call.
  virtual void BeginEpoch(const EpochPlan& plan, std::uint64_t epoch) = 0;

  // Forward, backward and update with this learning rate. Throws c10::Error if another rank has
  // ended, DataError.
  virtual Result Make(const StepBatches& batches, double rate) = 0;

  // The model's forward is made of other operations from now on than before.
  virtual void ForwardChanged() {}

  // Of the latest step, where --clip-norm asks for it. Waits for the device.
  virtual double gradient_norm() const = 0;

  // Whether steps are replays of a CUDA graph by now.
  virtual bool is_graph() const { return false; }
};

// The samples of a step's batches and what the batches' losses are multiplied with, so that their
// sum, averaged over the data-parallel ranks, is the mean over all of the step's samples.
struct StepShares {
  std::vector<std::int64_t> own;  // samples of this rank in each batch
  std::vector<double> weights;
  std::int64_t samples = 0;  // of all ranks

  std::int64_t OwnSum() const;
};
StepShares SharesOf(const EpochPlan& plan, const StepBatches& batches, int data_parallel_size);

// How --augment varies images.
AugmentOptions VariationOf(const Config& config);

// Of the epoch's loader.
LoaderOptions LoaderOptionsOf(const Config& config, const World& world, std::uint64_t epoch);

// Those that are there.
std::vector<at::Tensor> GradientsOf(const NamedTensors& parameters);

}  // namespace ddprun
