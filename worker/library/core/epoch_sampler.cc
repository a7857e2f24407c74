// SPDX-License-Identifier: Apache-2.0
#include "ddprun/epoch_sampler.h"

#include <ATen/Functions.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "worker/library/math/epoch_plan.h"

namespace ddprun {

EpochSampler::EpochSampler(const World& world, std::int64_t size, const Options& options)
    : plan_(std::make_shared<const EpochPlan>(
          EpochPlan::Options{.size = size,
                             .shard = {.rank = world.rank(), .world_size = world.size()},
                             .batch_size = options.batch_size,
                             .seed = options.seed,
                             .epoch = static_cast<std::uint64_t>(options.position.epoch),
                             .consumed = options.position.consumed})),
      batch_size_(options.batch_size),
      ranks_(world.size()) {}

void EpochSampler::reset(std::optional<std::size_t>) { read_ = advanced_; }

std::optional<EpochBatch> EpochSampler::next(std::size_t batch_size) {
  if (static_cast<std::int64_t>(batch_size) != batch_size_)
    throw std::invalid_argument("EpochSampler has batches of " + std::to_string(batch_size_) +
                                " samples, but the data loader asks for " +
                                std::to_string(batch_size) + "; give both the same batch size");
  if (read_ == plan_->batches()) return std::nullopt;
  std::vector<std::size_t> indices;
  for (const Sample& sample : plan_->Samples(read_))
    indices.push_back(static_cast<std::size_t>(sample.index));
  if (indices.empty()) indices.push_back(static_cast<std::size_t>(plan_->First(read_).index));
  // A loader accepts no batch of none; a stand-in is one.
  const std::int64_t fewest = std::max<std::int64_t>(1, plan_->GlobalSize(read_) / ranks_);
  ++read_;
  return EpochBatch(std::move(indices), static_cast<std::size_t>(fewest));
}

void EpochSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("advanced", at::scalar_tensor(advanced_, at::kLong), /*is_buffer=*/true);
}

void EpochSampler::load(torch::serialize::InputArchive& archive) {
  at::Tensor advanced;
  archive.read("advanced", advanced, /*is_buffer=*/true);
  read_ = advanced_ = advanced.item<std::int64_t>();
}

std::int64_t EpochSampler::batches() const { return plan_->batches(); }

double EpochSampler::LossWeight() const {
  weighed_ = true;
  if (advanced_ == plan_->batches()) return 1;
  return static_cast<double>(plan_->OwnSize(advanced_) * ranks_) /
         static_cast<double>(plan_->GlobalSize(advanced_));
}

void EpochSampler::Advance(TrainingPosition& position) {
  if (!std::exchange(weighed_, false) && LossWeight() != 1)
    throw std::logic_error(
        "the ranks have not the same number of samples in this batch, and "
        "EpochSampler::LossWeight() was not asked for; multiply the loss by it before backward, or "
        "go through Checkpoints::Epochs(), which weights the gradients");
  weighed_ = false;
  ++position.step;
  position.consumed = plan_->ConsumedAfter(advanced_);
  ++advanced_;
}

}  // namespace ddprun
