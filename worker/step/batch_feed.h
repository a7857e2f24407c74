// SPDX-License-Identifier: Apache-2.0
// Batches for steps that a device does alone. A step is told of its batches in two parts: the
// host's (Load), which queues whatever it must copy, and the device's (Get), of which a graph can
// be captured: it reads from the same memory each time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/loader/epoch_plan.h"
#include "worker/loader/gpu_images.h"
#include "worker/step/training_step.h"

namespace ddprun {

class BatchFeed {
 public:
  struct Images {
    at::Tensor images;
    at::Tensor labels;
  };

  virtual ~BatchFeed() = default;

  virtual void BeginEpoch(const EpochPlan& plan, std::uint64_t epoch) = 0;

  // The next step's batches, of these sizes on this rank, are these. Returns the seconds that the
  // host has waited for data. Does not wait for the device.
  virtual double Load(const StepBatches& batches, const std::vector<std::int64_t>& sizes) = 0;

  // The `i`-th of them. Its size must be what Load() was told, also at a later replay.
  virtual Images Get(std::int64_t i) = 0;
};

// From a set that lies on the device.
class GpuFeed : public BatchFeed {
 public:
  // The set must be a FixedSizeImages.
  GpuFeed(const Config& config, const FixedSizeImages& set, at::Device device);

  // Whether `set` can lie on a device that has so much memory left: at most half of it is taken.
  static bool Fits(const Config& config, const SampleSet& set, std::int64_t free_bytes);

  void BeginEpoch(const EpochPlan& plan, std::uint64_t epoch) override;
  double Load(const StepBatches& batches, const std::vector<std::int64_t>& sizes) override;
  Images Get(std::int64_t i) override;

 private:
  const Config& config_;
  const at::Device device_;
  const GpuImages images_;
  at::Tensor host_rows_;              // the epoch's, pinned, kept while the copy is under way
  at::Tensor rows_;                   // on the device
  at::Tensor cursor_;                 // int64 scalar there: the row that the step begins with
  std::vector<std::int64_t> begins_;  // of each batch of the epoch
  std::vector<std::int64_t> sizes_;
};

// From a loader's threads.
class LoaderFeed : public BatchFeed {
 public:
  LoaderFeed(const Config& config, const SampleSet& set, const World& world);

  void BeginEpoch(const EpochPlan& plan, std::uint64_t epoch) override;
  double Load(const StepBatches& batches, const std::vector<std::int64_t>& sizes) override;
  Images Get(std::int64_t i) override;

 private:
  // Where the step's `i`-th batch lies on the device.
  Images Place(std::size_t i, const Batch& batch);

  const Config& config_;
  const SampleSet& set_;
  const World& world_;
  std::optional<Loader> loader_;
  std::vector<Images> full_;  // of the full batches, by their place in a step: a graph reads them
  std::vector<Images> now_;
};

}  // namespace ddprun
