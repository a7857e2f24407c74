// SPDX-License-Identifier: Apache-2.0
// The samples of one epoch, divided among the ranks, for torch::data::make_data_loader(). The order
// is that of Python's DistributedSampler (torch.randperm of seed + epoch), number by number, but
// nothing is repeated to fill up: each sample of an epoch is used once, also by a training that
// goes on in the middle of it with another number of ranks.
#pragma once

#include <c10/util/ArrayRef.h>
#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ddprun/detail/training_position.h"
#include "ddprun/world.h"

namespace ddprun {

class EpochPlan;

// One rank's samples of a batch, as its dataset takes them.
class EpochBatch {
 public:
  // `fewest`: samples of the rank that has the fewest of this batch.
  EpochBatch(std::vector<std::size_t> indices, std::size_t fewest)
      : indices_(std::move(indices)), fewest_(fewest) {}

  auto begin() const { return indices_.begin(); }
  auto end() const { return indices_.end(); }
  operator c10::ArrayRef<std::size_t>() const { return indices_; }
  operator const std::vector<std::size_t>&() const { return indices_; }

  // What a data loader compares for drop_last: of the rank that has the fewest, so that all ranks
  // drop the same batches. This rank may have one more.
  std::size_t size() const { return fewest_; }

 private:
  std::vector<std::size_t> indices_;
  std::size_t fewest_;
};

// Copies share the plan; each has a place of its own in it, so that a data loader may read ahead.
// One thread at a time.
class EpochSampler : public torch::data::samplers::Sampler<EpochBatch> {
 public:
  struct Options {
    std::int64_t batch_size = 1;  // of one rank: the same as the data loader's
    std::uint64_t seed = 0;
    TrainingPosition position = {};  // where the training is: its epoch, and what is consumed of it
  };

  // `size` is that of the data set. Throws std::invalid_argument if there are fewer samples than
  // ranks, or more consumed than there are.
  EpochSampler(const World& world, std::int64_t size, const Options& options);

  // For the data loader. The last batch of an epoch may have up to twice batch_size less one
  // samples, or fewer: what is left is shared out as evenly as it goes. A rank without a sample in
  // it gets one whose LossWeight() is 0. next() throws std::invalid_argument if the data loader's
  // batch size is another one. With drop_last the last batch is left out on all ranks if it is
  // shorter than batch_size on one. The loader must keep the order (enforce_ordering, its default).
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  std::optional<EpochBatch> next(std::size_t batch_size) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  // That are left from the position on, the same on all ranks.
  std::int64_t batches() const;

  // For the batch that Advance() has not counted yet: the factor that makes the average of the
  // ranks' mean losses the mean over all their samples. 1 where all ranks have as many.
  double LossWeight() const;

  // A step with the next batch is done: sets `position` to what comes after it. Throws
  // std::logic_error if LossWeight() is not 1 and was not asked for.
  void Advance(TrainingPosition& position);

 private:
  std::shared_ptr<const EpochPlan> plan_;
  std::int64_t batch_size_;
  int ranks_;
  std::int64_t read_ = 0;         // batches that were given to the data loader
  std::int64_t advanced_ = 0;     // batches that were trained with
  mutable bool weighed_ = false;  // LossWeight() was asked for since then
};

}  // namespace ddprun
