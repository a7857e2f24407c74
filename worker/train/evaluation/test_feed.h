// SPDX-License-Identifier: Apache-2.0
// Where an evaluation's batches come from: a loader's threads, or the device's memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "ddprun/world.h"
#include "worker/library/math/sampler.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/data/fixed_size_images.h"
#include "worker/train/loader/gpu_images.h"
#include "worker/train/loader/loader.h"

namespace ddprun {

class TestFeed {
 public:
  struct Images {
    at::Tensor images;  // N x C x height x width, on the device
    at::Tensor labels;  // int64, N, there too
  };

  explicit TestFeed(std::int64_t size) : size_(size) {}
  virtual ~TestFeed() = default;

  // Images of all shards.
  std::int64_t size() const { return size_; }

  // A new pass over the images of one shard, in batches of --eval-batch-size.
  virtual void Begin() = 0;
  // The next batch, which is empty where all its images are damaged and left out; nothing after the
  // last. Does not wait for the device.
  virtual std::optional<Images> Next() = 0;

 private:
  const std::int64_t size_;
};

// From a loader's threads. All must outlive the feed.
class LoaderTestFeed : public TestFeed {
 public:
  LoaderTestFeed(const Config& config, const Dataset& data, const Shard& shard, at::Device device)
      : TestFeed(data.test->size()), config_(config), data_(data), shard_(shard), device_(device) {}

  void Begin() override;
  std::optional<Images> Next() override;

 private:
  const Config& config_;
  const Dataset& data_;
  const Shard shard_;
  const at::Device device_;
  std::optional<Loader> loader_;
};

// From a set that lies on the device, copied once: an evaluation reads nothing of the host's.
class ResidentTestFeed : public TestFeed {
 public:
  // Gives images of this type.
  ResidentTestFeed(const Config& config, const FixedSizeImages& set, const Shard& shard,
                   at::Device device, at::ScalarType type = at::kFloat);

  // Whether `set` can lie on a device that has so much memory left: at most half of it is taken.
  static bool Fits(const SampleSet& set, std::int64_t free_bytes);

  void Begin() override { next_ = 0; }
  std::optional<Images> Next() override;

 private:
  const at::ScalarType type_;
  const bool channels_last_;
  const std::int64_t batch_size_;
  const GpuImages images_;
  const at::Tensor rows_;  // the shard's, on the device
  std::int64_t next_ = 0;
};

// Feeds the data set's test images: resident like training images, with --device-data on a GPU that
// has the whole model, and then of this type. `config` and `data` must outlive it.
std::unique_ptr<TestFeed> MakeTestFeed(const Config& config, const Dataset& data,
                                       const World& world, const Shard& shard, at::ScalarType type);

}  // namespace ddprun
