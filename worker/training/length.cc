// SPDX-License-Identifier: Apache-2.0
#include "worker/training/length.h"

#include <algorithm>
#include <cmath>

#include "worker/data/epoch_plan.h"

namespace ddprun {
namespace {

// The share of one-cycle's steps in which the rate rises, where nothing else is said; PyTorch's.
constexpr double kOneCycleRise = 0.3;

std::int64_t StepsIn(double epochs, const Length& length) {
  return std::llround(epochs * static_cast<double>(length.steps_per_epoch));
}

Schedule::Kind KindOf(const std::string& name) {
  if (name == "step") return Schedule::Kind::kStep;
  if (name == "one-cycle") return Schedule::Kind::kOneCycle;
  if (name == "linear") return Schedule::Kind::kLinear;
  if (name == "constant") return Schedule::Kind::kConstant;
  return Schedule::Kind::kCosine;
}

}  // namespace

Length TrainingLength(const Config& config, std::int64_t train_images, int world_size) {
  Length length;
  length.steps_per_epoch =
      StepsOf(config, EpochPlan::BatchesOf(train_images, world_size, config.batch_size));
  length.steps = std::max<std::int64_t>(1, StepsIn(config.epochs, length));
  if (config.max_steps) length.steps = std::min(length.steps, *config.max_steps);
  length.epochs = (length.steps + length.steps_per_epoch - 1) / length.steps_per_epoch;
  return length;
}

std::int64_t StepsOf(const Config& config, std::int64_t batches) {
  return (batches + config.accumulate - 1) / config.accumulate;
}

Schedule MakeSchedule(const Config& config, const Length& length) {
  Schedule schedule{.kind = KindOf(config.schedule),
                    .peak_rate = config.lr,
                    .warmup_steps = StepsIn(config.warmup_epochs, length),
                    .total_steps = length.steps,
                    .step_length = std::max<std::int64_t>(1, StepsIn(config.step_epochs, length)),
                    .gamma = config.step_gamma};
  if (schedule.kind == Schedule::Kind::kOneCycle)
    schedule.warmup_steps = std::llround(kOneCycleRise * static_cast<double>(length.steps));
  schedule.warmup_steps =
      std::min(config.warmup_steps.value_or(schedule.warmup_steps), length.steps);
  return schedule;
}

std::int64_t EvaluationInterval(const Config& config, const Length& length) {
  if (config.eval_every == 0) return 0;
  return std::max<std::int64_t>(1, StepsIn(config.eval_every, length));
}

}  // namespace ddprun
