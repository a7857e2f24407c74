// SPDX-License-Identifier: Apache-2.0
#include "worker/training/length.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(TrainingLength, CountsTheShortLastBatch) {
  const Length length = TrainingLength({.batch_size = 64, .epochs = 2}, 60'000, 2);
  EXPECT_EQ(length.steps_per_epoch, 469);  // 30 000 images of a rank: 468 batches and 48 more
  EXPECT_EQ(length.steps, 938);
  EXPECT_EQ(length.epochs, 2);
}

TEST(TrainingLength, EpochsMayBeAFraction) {
  const Length length = TrainingLength({.batch_size = 10, .epochs = 1.5}, 100, 1);
  EXPECT_EQ(length.steps, 15);
  EXPECT_EQ(length.epochs, 2);
  EXPECT_EQ(TrainingLength({.batch_size = 10, .epochs = 0.01}, 100, 1).steps, 1);
}

TEST(TrainingLength, MaxStepsCutsItShort) {
  const Config config{.batch_size = 10, .epochs = 3, .max_steps = 12};
  EXPECT_EQ(TrainingLength(config, 100, 1).steps, 12);
  EXPECT_EQ(TrainingLength(config, 100, 1).epochs, 2);
  EXPECT_EQ(TrainingLength({.max_steps = 0}, 100, 1).steps, 0);
  EXPECT_EQ(TrainingLength({.max_steps = 0}, 100, 1).epochs, 0);
}

// 12 steps of two ranks' 20 images, then one rank with 10 images a step: 40 of an epoch's 100 are
// left after 3 steps of a second epoch.
TEST(TrainingLength, MaxStepsCountsStepsWhateverTheirSizeWas) {
  Config config{.batch_size = 10, .epochs = 4, .lr = 1, .warmup_epochs = 0};
  const TrainingPosition position{.step = 8, .epoch = 1, .consumed = 60};
  config.max_steps = 12;
  for (const int ranks : {1, 2, 4}) {
    const Length length = TrainingLength(config, 100, ranks, position);
    const std::int64_t now = StepInPlan(config, length, 100, ranks, position);
    EXPECT_EQ(length.steps - now, 4) << ranks;
    const Schedule schedule = MakeSchedule(config, length);
    EXPECT_EQ(schedule.total_steps, 12);
    EXPECT_DOUBLE_EQ(schedule.RateAt(now + length.made_more), schedule.RateAt(8));
  }
  config.max_steps = 8;
  const Length none = TrainingLength(config, 100, 1, position);
  EXPECT_EQ(none.steps, StepInPlan(config, none, 100, 1, position));
  config.max_steps = 5;
  const Length passed = TrainingLength(config, 100, 1, position);
  EXPECT_LT(passed.steps, StepInPlan(config, passed, 100, 1, position));
}

TEST(TrainingLength, EpochsEndATrainingThatMaxStepsDoesNot) {
  Config config{.batch_size = 10, .epochs = 2};
  const TrainingPosition position{.step = 8, .epoch = 1, .consumed = 60};
  for (const auto max_steps : {std::optional<std::int64_t>(), std::optional<std::int64_t>(13)}) {
    config.max_steps = max_steps;
    const Length length = TrainingLength(config, 100, 1, position);
    EXPECT_EQ(length.steps - StepInPlan(config, length, 100, 1, position), 4);
    EXPECT_EQ(MakeSchedule(config, length).total_steps, 20);
  }
}

TEST(MakeSchedule, WarmUpIsCountedInEpochsOrSteps) {
  Config config{.batch_size = 10, .epochs = 2, .lr = 0.3, .warmup_epochs = 0.5};
  const Length length = TrainingLength(config, 100, 1);
  EXPECT_EQ(MakeSchedule(config, length).warmup_steps, 5);
  EXPECT_EQ(MakeSchedule(config, length).total_steps, 20);
  EXPECT_EQ(MakeSchedule(config, length).peak_rate, 0.3);
  config.warmup_steps = 3;
  EXPECT_EQ(MakeSchedule(config, length).warmup_steps, 3);
  config.warmup_steps = 30;
  EXPECT_EQ(MakeSchedule(config, length).warmup_steps, 20);
}

TEST(TrainingLength, AccumulatedBatchesAreOneStep) {
  const Config config{.batch_size = 10, .epochs = 2, .accumulate = 4};
  const Length length = TrainingLength(config, 100, 1);  // ten batches: 4, 4 and 2
  EXPECT_EQ(length.steps_per_epoch, 3);
  EXPECT_EQ(length.steps, 6);
  EXPECT_EQ(StepsOf(config, 0), 0);
  EXPECT_EQ(StepsOf(config, 5), 2);
}

TEST(MakeSchedule, OneCycleRisesForThreeTenthsUnlessStepsAreGiven) {
  Config config{.batch_size = 10, .epochs = 2, .schedule = "one-cycle"};
  const Length length = TrainingLength(config, 100, 1);
  EXPECT_EQ(MakeSchedule(config, length).kind, Schedule::Kind::kOneCycle);
  EXPECT_EQ(MakeSchedule(config, length).rise_steps, 6);
  EXPECT_DOUBLE_EQ(MakeSchedule(config, {.steps = 12}).rise_steps, 3.6);  // as PyTorch's pct_start
  config.warmup_steps = 2;
  EXPECT_EQ(MakeSchedule(config, length).rise_steps, 2);
}

TEST(MakeSchedule, StepsAreCountedInEpochs) {
  const Config config{
      .batch_size = 10, .epochs = 90, .schedule = "step", .warmup_epochs = 0, .step_epochs = 30};
  const Schedule schedule = MakeSchedule(config, TrainingLength(config, 100, 1));
  EXPECT_EQ(schedule.step_length, 300);
  EXPECT_EQ(schedule.gamma, 0.1);
}

TEST(EvaluationInterval, IsInSteps) {
  Config config{.batch_size = 10, .epochs = 4};
  const Length length = TrainingLength(config, 100, 1);
  EXPECT_EQ(EvaluationInterval(config, length), 0);
  config.eval_every = 0.5;
  EXPECT_EQ(EvaluationInterval(config, length), 5);
  config.eval_every = 0.001;
  EXPECT_EQ(EvaluationInterval(config, length), 1);
}

}  // namespace
}  // namespace ddprun
