// SPDX-License-Identifier: Apache-2.0
#include "ddprun/detail/epoch_loop.h"

#include <limits>
#include <stdexcept>
#include <string>

#include "ddprun/checkpoints.h"

namespace ddprun {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

}  // namespace

EpochLoop::EpochLoop(Checkpoints& saved, std::int64_t samples, const EpochOptions& options)
    : saved_(saved), samples_(samples), options_(options) {
  if (options_.epochs == kNoLimit && options_.steps == kNoLimit)
    throw std::invalid_argument("Checkpoints::Epochs() has no end; give it epochs or steps");
  at_ = saved_.Begin();
}

void EpochLoop::CheckBatches() const {
  if (begun_at_.consumed == 0 && at_.step == begun_at_.step)
    throw std::invalid_argument("an epoch of " + std::to_string(samples_) +
                                " samples has no batch of " + std::to_string(options_.batch_size) +
                                " on each rank; make batches smaller, or leave drop_last out");
}

bool EpochLoop::NextEpoch() {
  if (!EndStep()) return false;
  if (sampler_) {
    CheckBatches();
    at_.NextEpoch();
  }
  if (at_.epoch >= options_.epochs || at_.step >= options_.steps) {
    Finish();
    return false;
  }
  begun_at_ = at_;
  sampler_.emplace(saved_.world(), samples_,
                   EpochSampler::Options{
                       .batch_size = options_.batch_size, .seed = options_.seed, .position = at_});
  return true;
}

TrainingPosition EpochLoop::BeginStep() {
  const double weight = sampler_->LossWeight();
  TrainingPosition after = at_;
  sampler_->Advance(after);
  saved_.BeginStep(after, weight);
  under_way_ = after;
  return after;
}

bool EpochLoop::EndStep() {
  if (under_way_) {
    at_ = *under_way_;
    under_way_.reset();
    saved_.EndStepOrThrow(at_);
    if (at_.step >= options_.steps) Finish();
  }
  return !finished_;
}

void EpochLoop::Finish() {
  saved_.Finish(at_);
  finished_ = true;
}

}  // namespace ddprun
