// SPDX-License-Identifier: Apache-2.0
#include "worker/train/evaluation/test_feed.h"

#include <algorithm>
#include <vector>

#include "worker/library/accelerator/accelerator.h"
#include "worker/train/step/make_training_loop.h"

namespace ddprun {
namespace {

// Test images are shown as they are.
constexpr AugmentOptions kNoVariation{.padding = 0};

at::Tensor RowsOf(const GpuImages& images, std::int64_t size, const Shard& shard) {
  std::vector<Sample> samples;
  for (const std::int64_t index : EvaluationIndices(size, shard))
    samples.push_back({.index = index});
  return images.Rows(samples, /*draw=*/std::nullopt);
}

}  // namespace

void LoaderTestFeed::Begin() {
  loader_.emplace(*data_.test, EvaluationIndices(size(), shard_), config_.eval_batch_size,
                  LoaderOptions{.channels_last = config_.channels_last,
                                .pinned = device_.is_cuda(),
                                .threads = config_.loader_threads,
                                .damaged = data_.damaged.get()});
}

std::optional<TestFeed::Images> LoaderTestFeed::Next() {
  const auto batch = loader_->Next();
  if (!batch) {
    loader_.reset();  // with its threads
    return std::nullopt;
  }
  return Images{batch->images.to(device_, /*non_blocking=*/true),
                batch->labels.to(device_, /*non_blocking=*/true)};
}

ResidentTestFeed::ResidentTestFeed(const Config& config, const FixedSizeImages& set,
                                   const Shard& shard, at::Device device, at::ScalarType type)
    : TestFeed(set.size()),
      type_(type),
      channels_last_(config.channels_last),
      batch_size_(config.eval_batch_size),
      images_(set, kNoVariation, device),
      rows_(RowsOf(images_, set.size(), shard).to(device)) {}

bool ResidentTestFeed::Fits(const SampleSet& set, std::int64_t free_bytes) {
  const auto* stored = dynamic_cast<const FixedSizeImages*>(&set);
  return stored != nullptr && GpuImages::BytesOf(*stored, kNoVariation) <= free_bytes / 2;
}

std::optional<TestFeed::Images> ResidentTestFeed::Next() {
  const std::int64_t count = std::min(batch_size_, rows_.size(0) - next_);
  if (count <= 0) return std::nullopt;
  GpuImages::Batch batch =
      images_.Make({.rows = rows_, .first = next_, .count = count, .type = type_});
  next_ += count;
  if (!channels_last_) batch.images = batch.images.contiguous();
  return Images{batch.images, batch.labels};
}

std::unique_ptr<TestFeed> MakeTestFeed(const Config& config, const Dataset& data,
                                       const World& world, const Shard& shard,
                                       at::ScalarType type) {
  const at::Device device = world.device();
  if (WholeModelOnGpu(config, world) && config.device_data &&
      ResidentTestFeed::Fits(*data.test, LoadAccelerator().FreeBytes(device.index()))) {
    return std::make_unique<ResidentTestFeed>(
        config, dynamic_cast<const FixedSizeImages&>(*data.test), shard, device, type);
  }
  return std::make_unique<LoaderTestFeed>(config, data, shard, device);
}

}  // namespace ddprun
