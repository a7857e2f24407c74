// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/training_plan.h"

#include <algorithm>
#include <cmath>

#include "worker/library/math/epoch_plan.h"

namespace ddprun {
namespace {

// The default share of one-cycle's steps in which the rate rises, as in PyTorch.
constexpr double kOneCycleRise = 0.3;

std::int64_t StepsIn(double epochs, const TrainingPlan& plan) {
  return std::llround(epochs * static_cast<double>(plan.steps_per_epoch));
}

}  // namespace

TrainingPlan MakeTrainingPlan(const Config& config, std::int64_t train_images, int world_size,
                              const TrainingPosition& position) {
  TrainingPlan plan;
  plan.steps_per_epoch =
      StepsOf(config, EpochPlan::BatchesOf(train_images, world_size, config.batch_size));
  plan.steps = std::max<std::int64_t>(1, StepsIn(config.epochs, plan));
  if (config.max_steps) {
    const std::int64_t made_more =
        position.step - StepInPlan(config, plan, train_images, world_size, position);
    if (*config.max_steps - made_more <= plan.steps) {
      plan.steps = *config.max_steps - made_more;
      plan.made_more = made_more;
    }
  }
  plan.epochs =
      (std::max<std::int64_t>(0, plan.steps) + plan.steps_per_epoch - 1) / plan.steps_per_epoch;
  return plan;
}

std::int64_t StepInPlan(const Config& config, const TrainingPlan& plan, std::int64_t train_images,
                        int world_size, const TrainingPosition& position) {
  // An epoch may have been cut into other steps before: what is left of it counts.
  const std::int64_t left = StepsOf(config, EpochPlan::BatchesOf(train_images - position.consumed,
                                                                 world_size, config.batch_size));
  return (position.epoch + 1) * plan.steps_per_epoch - left;
}

std::int64_t StepsOf(const Config& config, std::int64_t batches) {
  return (batches + config.accumulate - 1) / config.accumulate;
}

Schedule MakeSchedule(const Config& config, const TrainingPlan& plan) {
  const std::int64_t total = plan.steps + plan.made_more;
  Schedule schedule{.kind = config.schedule,
                    .peak_rate = config.lr,
                    .warmup_steps = StepsIn(config.warmup_epochs, plan),
                    .total_steps = total,
                    .step_length = std::max<std::int64_t>(1, StepsIn(config.step_epochs, plan)),
                    .gamma = config.step_gamma};
  schedule.warmup_steps = std::min(config.warmup_steps.value_or(schedule.warmup_steps), total);
  schedule.rise_steps = config.warmup_steps ? static_cast<double>(schedule.warmup_steps)
                                            : kOneCycleRise * static_cast<double>(total);
  return schedule;
}

std::int64_t EvaluationInterval(const Config& config, const TrainingPlan& plan) {
  if (config.eval_every == 0) return 0;
  return std::max<std::int64_t>(1, StepsIn(config.eval_every, plan));
}

}  // namespace ddprun
