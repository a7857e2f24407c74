// SPDX-License-Identifier: Apache-2.0
#include "worker/training/training_parts.h"

#include <utility>

#include "worker/loss/loss.h"
#include "worker/parallel/make_strategy.h"
#include "worker/parallel/precision.h"
#include "worker/step/make_train_step.h"
#include "worker/training/prepare_model.h"

namespace ddprun {
namespace {

StepOptions OptionsOf(const Config& config, const World& world, MetricSums& sums,
                      std::function<void(StepSection)> enter) {
  return {.loss = Losses().Get(config.loss)({.label_smoothing = config.label_smoothing}),
          .autocast = AutocastType(config.amp, world.device()),
          .gradients = config.compress,
          .enter = std::move(enter),
          .on_scores = [&sums](const at::Tensor& scores, const at::Tensor& labels,
                               const at::Tensor& loss) {
            sums.Add(scores, labels, loss, static_cast<double>(labels.size(0)));
          }};
}

}  // namespace

TrainingParts::TrainingParts(const Config& config, const Dataset& data, World& world,
                             Console& console, std::int64_t steps_per_epoch,
                             std::function<void(StepSection)> enter)
    : model(PrepareModel(config, data, world, console)),
      strategy(MakeParallelStrategy(config, data, world, *model, console,
                                    OptionsOf(config, world, epoch_sums, std::move(enter)))),
      parameters(strategy->Parameters()),
      optimizer(MakeOptimizer(
          config, parameters,
          {.steps_per_epoch = steps_per_epoch,
           .images = config.batch_size * config.accumulate * strategy->shard().world_size})),
      scaler(config.amp == Amp::kFp16, world.device()),
      config_(config),
      data_(data),
      world_(world),
      console_(console) {
  if (config.ema_decay > 0) average.emplace(parameters, config.ema_decay);
}

std::unique_ptr<TrainStep> TrainingParts::MakeStep(StepCalls calls) {
  return MakeTrainStep({.config = config_,
                        .world = world_,
                        .strategy = *strategy,
                        .parameters = parameters,
                        .optimizer = *optimizer,
                        .scaler = scaler,
                        .average = average ? &*average : nullptr,
                        .calls = std::move(calls)},
                       data_, [this](const std::string& text) {
                         if (world_.rank() == 0) console_.Line(text);
                       });
}

}  // namespace ddprun
