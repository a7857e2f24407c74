// SPDX-License-Identifier: Apache-2.0
#include "worker/step/training_step.h"

#include <numeric>

#include "worker/data/augment.h"

namespace ddprun {

std::int64_t StepShares::OwnSum() const {
  return std::accumulate(own.begin(), own.end(), std::int64_t{0});
}

StepShares SharesOf(const EpochPlan& plan, const StepBatches& batches, int data_parallel_size) {
  StepShares shares;
  for (std::int64_t i = 0; i < batches.count; ++i) {
    shares.samples += plan.GlobalSize(batches.first + i);
    shares.own.push_back(plan.OwnSize(batches.first + i));
  }
  for (const std::int64_t own : shares.own) {
    shares.weights.push_back(static_cast<double>(own * data_parallel_size) /
                             static_cast<double>(shares.samples));
  }
  return shares;
}

AugmentOptions VariationOf(const Config& config) {
  return {.padding = config.crop_padding,
          .mode = ParsePadding(config.padding_mode),
          .flip = ParseFlip(config.flip)};
}

LoaderOptions LoaderOptionsOf(const Config& config, const World& world, std::uint64_t epoch) {
  return {.augment = config.augment,
          .variation = VariationOf(config),
          .channels_last = config.channels_last,
          .pinned = world.device().is_cuda(),
          .seed = config.seed,
          .epoch = epoch,
          .threads = config.loader_threads};
}

std::vector<at::Tensor> GradientsOf(const NamedTensors& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

}  // namespace ddprun
