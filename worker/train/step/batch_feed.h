// SPDX-License-Identifier: Apache-2.0
// Where a step's batches come from. Each is given in two parts: Load(), which waits for data and
// queues whatever must be copied, and Get(), which a CUDA graph can be captured of: it reads from
// the same memory each time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <future>
#include <optional>
#include <vector>

#include "ddprun/world.h"
#include "worker/library/math/epoch_plan.h"
#include "worker/train/config/config.h"
#include "worker/train/loader/gpu_images.h"
#include "worker/train/loader/loader.h"
#include "worker/train/loader/step_batches.h"

namespace ddprun {

class BatchFeed {
 public:
  struct Images {
    at::Tensor images;
    at::Tensor labels;
  };

  virtual ~BatchFeed() = default;

  virtual void BeginEpoch(const EpochPlan& plan) = 0;

  // The next step's batches, which have so many samples of this rank.
  virtual void BeginStep(const StepBatches& batches, const std::vector<std::int64_t>& own) = 0;

  // Makes the `i`-th of them ready, in order. Returns the seconds that the host has waited for
  // data. Never waits for the device.
  virtual double Load(std::int64_t i) = 0;

  // The `i`-th of them, which is ready. A rank without a sample in it gets one that does not count.
  virtual Images Get(std::int64_t i) = 0;
};

// From a set that lies on the device. While an epoch is trained, a thread makes the next one's
// rows.
class GpuFeed : public BatchFeed {
 public:
  // Gives images of this type.
  GpuFeed(const Config& config, const FixedSizeImages& set, at::Device device,
          at::ScalarType type = at::kFloat);

  // Whether `set` can lie on a device that has so much memory left: at most half of it is taken.
  static bool Fits(const Config& config, const SampleSet& set, std::int64_t free_bytes);

  void BeginEpoch(const EpochPlan& plan) override;
  void BeginStep(const StepBatches& batches, const std::vector<std::int64_t>& own) override;
  double Load(std::int64_t) override;
  Images Get(std::int64_t i) override;

 private:
  // What an epoch is read by.
  struct Rows {
    EpochPlan::Options plan;
    at::Tensor rows;                   // on the host
    std::vector<std::int64_t> begins;  // of each batch
  };

  Rows MakeRows(const EpochPlan& plan) const;
  // Made ahead, or now.
  Rows TakeRows(const EpochPlan& plan);
  void MakeAhead(const EpochPlan::Options& plan);

  const Config& config_;
  const at::Device device_;
  const at::ScalarType type_;
  const GpuImages images_;
  at::Tensor host_rows_;              // the epoch's, pinned, kept while the copy is under way
  at::Tensor rows_;                   // on the device
  at::Tensor cursor_;                 // int64 scalar there: the row that the step begins with
  std::vector<std::int64_t> begins_;  // of each batch of the epoch
  std::vector<std::int64_t> sizes_;
  std::future<Rows> ahead_;  // the last member: destroying it waits for the thread
};

// From a loader's threads.
class LoaderFeed : public BatchFeed {
 public:
  LoaderFeed(const Config& config, const Dataset& data, const World& world);

  void BeginEpoch(const EpochPlan& plan) override;
  void BeginStep(const StepBatches& batches, const std::vector<std::int64_t>& own) override;
  double Load(std::int64_t) override;
  Images Get(std::int64_t i) override;

 private:
  // Where the step's `i`-th batch lies on a GPU.
  Images Place(std::size_t i, const Batch& batch);

  const Config& config_;
  const Dataset& data_;
  const World& world_;
  std::optional<Loader> loader_;
  std::vector<Images> full_;  // on a GPU, by their place in a step: a graph reads full ones
  std::vector<Images> now_;
};

}  // namespace ddprun
