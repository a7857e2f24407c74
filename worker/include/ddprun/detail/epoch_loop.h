// SPDX-License-Identifier: Apache-2.0
// What Checkpoints::Epochs() returns: a loop over epochs, of loops over steps.
#pragma once

#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ddprun/detail/training_position.h"
#include "ddprun/epoch_sampler.h"

namespace ddprun {

class Checkpoints;

struct EpochOptions {
  std::int64_t batch_size = 1;  // of one rank
  // The training ends before this epoch or after this step, whichever comes first; one is needed.
  std::int64_t epochs = std::numeric_limits<std::int64_t>::max();
  std::int64_t steps = std::numeric_limits<std::int64_t>::max();
  std::uint64_t seed = 0;  // of the order of samples
  // Leaves out an epoch's last batch if it is shorter on one rank.
  bool drop_last = false;
  std::size_t workers = 0;  // threads that read ahead, as the data loader's
};

// The numbers of the samples of a batch, where there is no data set.
class SampleNumbers
    : public torch::data::datasets::BatchDataset<SampleNumbers, std::vector<std::size_t>> {
 public:
  explicit SampleNumbers(std::size_t size) : size_(size) {}
  std::vector<std::size_t> get_batch(c10::ArrayRef<std::size_t> numbers) override {
    return numbers.vec();
  }
  std::optional<std::size_t> size() const override { return size_; }

 private:
  std::size_t size_;
};

// Where a training is, and what each step and epoch begins and ends with. Without the data.
class EpochLoop {
 public:
  EpochLoop(Checkpoints& saved, std::int64_t samples, const EpochOptions& options);

  // Whether there is one. Ends the step under way, and the training where there is none.
  bool NextEpoch();
  // A batch is there. The position after its step.
  TrainingPosition BeginStep();
  // Ends the one under way. Whether the training goes on.
  bool EndStep();

  const EpochSampler& sampler() const { return *sampler_; }  // of the epoch
  const EpochOptions& options() const { return options_; }

 private:
  // Throws std::invalid_argument if the epoch has had no batch at all.
  void CheckBatches() const;
  void Finish();

  Checkpoints& saved_;
  const std::int64_t samples_;
  const EpochOptions options_;
  TrainingPosition at_;        // after the latest step that has ended
  TrainingPosition begun_at_;  // the epoch
  std::optional<TrainingPosition> under_way_;
  std::optional<EpochSampler> sampler_;
  bool finished_ = false;
};

// Goes once through what `Source` gives: Next(), false at the end, and then value().
template <typename Source>
class SinglePass {
 public:
  explicit SinglePass(Source& source) : source_(source), more_(source.Next()) {}
  auto& operator*() const { return source_.value(); }
  SinglePass& operator++() {
    more_ = source_.Next();
    return *this;
  }
  bool operator==(std::default_sentinel_t) const { return !more_; }

 private:
  Source& source_;
  bool more_;
};

template <typename BatchType>
struct TrainingStep {
  BatchType batch;
  TrainingPosition at;  // after this step: at.step is its number, counted from 1
};

// The steps of one epoch.
template <typename Dataset>
class TrainingEpoch {
 public:
  TrainingEpoch(EpochLoop& loop, const Dataset& data)
      : loop_(loop),
        loader_(torch::data::make_data_loader(data, loop.sampler(),
                                              torch::data::DataLoaderOptions()
                                                  .batch_size(loop.options().batch_size)
                                                  .drop_last(loop.options().drop_last)
                                                  .workers(loop.options().workers))) {}

  auto begin() { return SinglePass(*this); }
  std::default_sentinel_t end() const { return {}; }

  bool Next() {
    if (!loop_.EndStep()) return false;
    if (place_)
      ++*place_;
    else
      place_.emplace(loader_->begin());
    if (*place_ == loader_->end()) return false;
    step_ = TrainingStep<Batch>{std::move(**place_), loop_.BeginStep()};
    return true;
  }
  auto& value() { return *step_; }

 private:
  using Batch = typename Dataset::BatchType;

  EpochLoop& loop_;
  std::unique_ptr<torch::data::StatelessDataLoader<Dataset, EpochSampler>> loader_;
  std::optional<torch::data::Iterator<Batch>> place_;
  std::optional<TrainingStep<Batch>> step_;
};

template <typename Dataset>
class TrainingEpochs {
 public:
  TrainingEpochs(Checkpoints& saved, Dataset data, const EpochOptions& options)
      : data_(std::move(data)),
        loop_(saved, static_cast<std::int64_t>(data_.size().value()), options) {}
  TrainingEpochs(const TrainingEpochs&) = delete;
  TrainingEpochs& operator=(const TrainingEpochs&) = delete;

  auto begin() { return SinglePass(*this); }
  std::default_sentinel_t end() const { return {}; }

  bool Next() {
    if (!loop_.NextEpoch()) return false;
    epoch_.emplace(loop_, data_);
    return true;
  }
  auto& value() { return *epoch_; }

 private:
  Dataset data_;
  EpochLoop loop_;
  std::optional<TrainingEpoch<Dataset>> epoch_;
};

}  // namespace ddprun
