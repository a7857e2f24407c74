// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/batch_feed.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <system_error>
#include <utility>

#include "worker/train/data/augment.h"

namespace ddprun {
namespace {

// How --augment varies images.
AugmentOptions VariationOf(const Config& config) {
  return {.padding = config.crop_padding, .mode = config.padding_mode, .flip = config.flip};
}

}  // namespace

GpuFeed::GpuFeed(const Config& config, const FixedSizeImages& set, at::Device device,
                 at::ScalarType type)
    : config_(config),
      device_(device),
      type_(type),
      images_(set, VariationOf(config), device),
      cursor_(at::zeros({}, at::TensorOptions(device).dtype(at::kLong))) {}

bool GpuFeed::Fits(const Config& config, const SampleSet& set, std::int64_t free_bytes) {
  const auto* stored = dynamic_cast<const FixedSizeImages*>(&set);
  return stored != nullptr && GpuImages::BytesOf(*stored, VariationOf(config)) <= free_bytes / 2;
}

GpuFeed::Rows GpuFeed::MakeRows(const EpochPlan& plan) const {
  Rows made{.plan = plan.options(), .rows = {}, .begins = {}};
  std::vector<Sample> samples;
  for (std::int64_t batch = 0; batch < plan.batches(); ++batch) {
    made.begins.push_back(static_cast<std::int64_t>(samples.size()));
    const std::vector<Sample> own = plan.Samples(batch);
    samples.insert(samples.end(), own.begin(), own.end());
    // A rank that nothing is left for goes along with a sample that does not count.
    if (own.empty()) samples.push_back(plan.First(batch));
  }
  std::optional<Draw> draw;
  if (config_.augment) draw = Draw{.seed = config_.seed, .epoch = made.plan.epoch};
  made.rows = images_.Rows(samples, draw);
  return made;
}

GpuFeed::Rows GpuFeed::TakeRows(const EpochPlan& plan) {
  if (ahead_.valid()) {
    Rows made = ahead_.get();
    if (made.plan == plan.options()) return made;
  }
  return MakeRows(plan);
}

void GpuFeed::MakeAhead(const EpochPlan::Options& plan) {
  try {
    ahead_ = std::async(std::launch::async, [this, plan] { return MakeRows(EpochPlan(plan)); });
  } catch (const std::system_error&) {
    // No thread can be started: they are made when they are needed.
  }
}

void GpuFeed::BeginEpoch(const EpochPlan& plan) {
  Rows made = TakeRows(plan);
  begins_ = std::move(made.begins);
  host_rows_ = device_.is_cuda() ? made.rows.pin_memory() : made.rows;
  // A graph reads where the first epoch's rows lay.
  if (!rows_.defined()) {
    rows_ = at::zeros({plan.OwnLimit(), GpuImages::kColumns},
                      at::TensorOptions(device_).dtype(at::kInt));
  }
  rows_.narrow(0, 0, host_rows_.size(0)).copy_(host_rows_, /*non_blocking=*/true);
  MakeAhead(plan.Next());
}

void GpuFeed::BeginStep(const StepBatches& batches, const std::vector<std::int64_t>& own) {
  sizes_ = own;
  // A rank that nothing is left for goes along with a sample that does not count.
  for (std::int64_t& size : sizes_) size = std::max<std::int64_t>(size, 1);
  cursor_.fill_(begins_[static_cast<std::size_t>(batches.first)]);
}

double GpuFeed::Load(std::int64_t) { return 0; }

BatchFeed::Images GpuFeed::Get(std::int64_t i) {
  const std::int64_t before = std::accumulate(sizes_.begin(), sizes_.begin() + i, std::int64_t{0});
  const std::int64_t size = sizes_[static_cast<std::size_t>(i)];
  GpuImages::Batch batch = images_.Make({.rows = rows_,
                                         .cursor = cursor_,
                                         .first = before,
                                         .count = size,
                                         .type = type_,
                                         .channels = config_.pad_channels});
  if (!config_.channels_last) batch.images = batch.images.contiguous();
  return {batch.images, batch.labels};
}

LoaderFeed::LoaderFeed(const Config& config, const Dataset& data, const World& world)
    : config_(config), data_(data), world_(world) {}

void LoaderFeed::BeginEpoch(const EpochPlan& plan) {
  loader_.emplace(*data_.train, plan,
                  LoaderOptions{.augment = config_.augment,
                                .variation = VariationOf(config_),
                                .channels_last = config_.channels_last,
                                .pinned = world_.device().is_cuda(),
                                .seed = config_.seed,
                                .epoch = plan.options().epoch,
                                .threads = config_.loader_threads,
                                .damaged = data_.damaged.get()});
}

void LoaderFeed::BeginStep(const StepBatches&, const std::vector<std::int64_t>& own) {
  now_.assign(own.size(), {});
}

double LoaderFeed::Load(std::int64_t i) {
  const auto batch = loader_->Next();
  TORCH_INTERNAL_ASSERT(batch.has_value());  // the loader has the plan's number of batches
  Images& images = now_[static_cast<std::size_t>(i)];
  if (world_.device().is_cpu()) {
    images = {batch->images, batch->labels};
  } else {
    images = Place(static_cast<std::size_t>(i), *batch);
    images.images.copy_(batch->images, /*non_blocking=*/true);
    images.labels.copy_(batch->labels, /*non_blocking=*/true);
  }
  return batch->waited_seconds;
}

BatchFeed::Images LoaderFeed::Place(std::size_t i, const Batch& batch) {
  const auto fresh = [&](const at::Tensor& like) {
    return at::empty_like(like, like.options().device(world_.device()).pinned_memory(false));
  };
  if (batch.images.size(0) != config_.batch_size) return {fresh(batch.images), fresh(batch.labels)};
  while (i >= full_.size()) full_.push_back({fresh(batch.images), fresh(batch.labels)});
  return full_[i];
}

// On a CPU nothing is kept once it was taken: the loader takes its memory again.
BatchFeed::Images LoaderFeed::Get(std::int64_t i) {
  Images& images = now_[static_cast<std::size_t>(i)];
  return world_.device().is_cpu() ? std::exchange(images, {}) : images;
}

}  // namespace ddprun
