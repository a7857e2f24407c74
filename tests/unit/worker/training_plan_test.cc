// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/training_plan.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(MakeTrainingPlan, CountsTheShortLastBatch) {
  const TrainingPlan plan = MakeTrainingPlan({.batch_size = 64, .epochs = 2}, 60'000, 2);
  EXPECT_EQ(plan.steps_per_epoch, 469);  // 30 000 images of a rank: 468 batches and 48 more
  EXPECT_EQ(plan.steps, 938);
  EXPECT_EQ(plan.epochs, 2);
}

TEST(MakeTrainingPlan, EpochsMayBeAFraction) {
  const TrainingPlan plan = MakeTrainingPlan({.batch_size = 10, .epochs = 1.5}, 100, 1);
  EXPECT_EQ(plan.steps, 15);
  EXPECT_EQ(plan.epochs, 2);
  EXPECT_EQ(MakeTrainingPlan({.batch_size = 10, .epochs = 0.01}, 100, 1).steps, 1);
}

TEST(MakeTrainingPlan, MaxStepsCutsItShort) {
  const Config config{.batch_size = 10, .epochs = 3, .max_steps = 12};
  EXPECT_EQ(MakeTrainingPlan(config, 100, 1).steps, 12);
  EXPECT_EQ(MakeTrainingPlan(config, 100, 1).epochs, 2);
  EXPECT_EQ(MakeTrainingPlan({.max_steps = 0}, 100, 1).steps, 0);
  EXPECT_EQ(MakeTrainingPlan({.max_steps = 0}, 100, 1).epochs, 0);
}

// 12 steps of two ranks' 20 images, then one rank with 10 images a step: 40 of an epoch's 100 are
// left after 3 steps of a second epoch.
TEST(MakeTrainingPlan, MaxStepsCountsStepsWhateverTheirSizeWas) {
  Config config{.batch_size = 10, .epochs = 4, .lr = 1, .warmup_epochs = 0};
  const TrainingPosition position{.step = 8, .epoch = 1, .consumed = 60};
  config.max_steps = 12;
  for (const int ranks : {1, 2, 4}) {
    const TrainingPlan plan = MakeTrainingPlan(config, 100, ranks, position);
    const std::int64_t now = StepInPlan(config, plan, 100, ranks, position);
    EXPECT_EQ(plan.steps - now, 4) << ranks;
    const Schedule schedule = MakeSchedule(config, plan);
    EXPECT_EQ(schedule.total_steps, 12);
    EXPECT_DOUBLE_EQ(schedule.RateAt(now + plan.made_more), schedule.RateAt(8));
  }
  config.max_steps = 8;
  const TrainingPlan none = MakeTrainingPlan(config, 100, 1, position);
  EXPECT_EQ(none.steps, StepInPlan(config, none, 100, 1, position));
  config.max_steps = 5;
  const TrainingPlan passed = MakeTrainingPlan(config, 100, 1, position);
  EXPECT_LT(passed.steps, StepInPlan(config, passed, 100, 1, position));
}

TEST(MakeTrainingPlan, EpochsEndATrainingThatMaxStepsDoesNot) {
  Config config{.batch_size = 10, .epochs = 2};
  const TrainingPosition position{.step = 8, .epoch = 1, .consumed = 60};
  for (const auto max_steps : {std::optional<std::int64_t>(), std::optional<std::int64_t>(13)}) {
    config.max_steps = max_steps;
    const TrainingPlan plan = MakeTrainingPlan(config, 100, 1, position);
    EXPECT_EQ(plan.steps - StepInPlan(config, plan, 100, 1, position), 4);
    EXPECT_EQ(MakeSchedule(config, plan).total_steps, 20);
  }
}

TEST(MakeSchedule, WarmUpIsCountedInEpochsOrSteps) {
  Config config{.batch_size = 10, .epochs = 2, .lr = 0.3, .warmup_epochs = 0.5};
  const TrainingPlan plan = MakeTrainingPlan(config, 100, 1);
  EXPECT_EQ(MakeSchedule(config, plan).warmup_steps, 5);
  EXPECT_EQ(MakeSchedule(config, plan).total_steps, 20);
  EXPECT_EQ(MakeSchedule(config, plan).peak_rate, 0.3);
  config.warmup_steps = 3;
  EXPECT_EQ(MakeSchedule(config, plan).warmup_steps, 3);
  config.warmup_steps = 30;
  EXPECT_EQ(MakeSchedule(config, plan).warmup_steps, 20);
}

TEST(MakeTrainingPlan, AccumulatedBatchesAreOneStep) {
  const Config config{.batch_size = 10, .epochs = 2, .accumulate = 4};
  const TrainingPlan plan = MakeTrainingPlan(config, 100, 1);  // ten batches: 4, 4 and 2
  EXPECT_EQ(plan.steps_per_epoch, 3);
  EXPECT_EQ(plan.steps, 6);
  EXPECT_EQ(StepsOf(config, 0), 0);
  EXPECT_EQ(StepsOf(config, 5), 2);
}

TEST(MakeSchedule, OneCycleRisesForThreeTenthsUnlessStepsAreGiven) {
  Config config{.batch_size = 10, .epochs = 2, .schedule = ScheduleKind::kOneCycle};
  const TrainingPlan plan = MakeTrainingPlan(config, 100, 1);
  EXPECT_EQ(MakeSchedule(config, plan).kind, Schedule::Kind::kOneCycle);
  EXPECT_EQ(MakeSchedule(config, plan).rise_steps, 6);
  EXPECT_DOUBLE_EQ(MakeSchedule(config, {.steps = 12}).rise_steps, 3.6);  // as PyTorch's pct_start
  config.warmup_steps = 2;
  EXPECT_EQ(MakeSchedule(config, plan).rise_steps, 2);
}

TEST(MakeSchedule, StepsAreCountedInEpochs) {
  const Config config{.batch_size = 10,
                      .epochs = 90,
                      .schedule = ScheduleKind::kStep,
                      .warmup_epochs = 0,
                      .step_epochs = 30};
  const Schedule schedule = MakeSchedule(config, MakeTrainingPlan(config, 100, 1));
  EXPECT_EQ(schedule.step_length, 300);
  EXPECT_EQ(schedule.gamma, 0.1);
}

TEST(EvaluationInterval, IsInSteps) {
  Config config{.batch_size = 10, .epochs = 4};
  const TrainingPlan plan = MakeTrainingPlan(config, 100, 1);
  EXPECT_EQ(EvaluationInterval(config, plan), 0);
  config.eval_every = 0.5;
  EXPECT_EQ(EvaluationInterval(config, plan), 5);
  config.eval_every = 0.001;
  EXPECT_EQ(EvaluationInterval(config, plan), 1);
}

}  // namespace
}  // namespace ddprun
