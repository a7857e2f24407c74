// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/training_state.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "worker/train/step/step_counter.h"

namespace ddprun {
namespace {

constexpr std::int64_t kImages = 25;  // of one rank: batches of 10, 10 and 5

// Makes the next step of the epoch, whose first one was batch `first`.
void MakeStep(TrainingState& state, const EpochPlan& epoch, std::int64_t batch) {
  state.EndStep(epoch, batch);
  state.EndEpochIfConsumed();
}

TEST(TrainingState, CountsStepsAndEpochs) {
  const Config config{.batch_size = 10, .epochs = 2};
  TrainingState state(config, kImages, 1);
  for (int number = 0; number < 2; ++number) {
    const EpochPlan epoch = state.BeginEpoch({0, 1});
    EXPECT_EQ(state.steps_of_epoch(), 3);
    for (std::int64_t batch = 0; batch < epoch.batches(); ++batch) {
      EXPECT_FALSE(state.Done());
      EXPECT_EQ(state.step_of_epoch(), batch);
      MakeStep(state, epoch, batch);
    }
    EXPECT_EQ(state.position(), (TrainingPosition{.step = 3 * (number + 1), .epoch = number + 1}));
    EXPECT_EQ(state.PlannedEpochs(), number + 1);
    EXPECT_EQ(state.EpochsDone(), number + 1);
  }
  EXPECT_TRUE(state.Done());
}

TEST(TrainingState, GoesOnInTheMiddleOfAnEpoch) {
  const Config config{.batch_size = 10, .epochs = 2};
  TrainingState state(config, kImages, 1);
  state.GoOnFrom({.position = {.step = 4, .epoch = 1, .consumed = 10}});
  EXPECT_EQ(state.plan_step(), 4);
  const EpochPlan epoch = state.BeginEpoch({0, 1});
  EXPECT_EQ(epoch.batches(), 2);
  EXPECT_EQ(state.step_of_epoch(), 1);
  MakeStep(state, epoch, 0);
  EXPECT_EQ(state.position(), (TrainingPosition{.step = 5, .epoch = 1, .consumed = 20}));
  MakeStep(state, epoch, 1);
  EXPECT_TRUE(state.Done());
}

// With half as many ranks as before: what is left counts, not the steps made so far.
TEST(TrainingState, AnotherNumberOfRanksChangesTheStepInThePlan) {
  const Config config{.batch_size = 10, .epochs = 1};
  TrainingState state(config, 40, 2);
  EXPECT_EQ(state.plan().steps, 2);
  TrainingState alone(config, 40, 1);
  alone.GoOnFrom({.position = {.step = 1, .consumed = 20}});
  EXPECT_EQ(alone.plan_step(), 2);
  EXPECT_EQ(alone.BeginEpoch({0, 1}).batches(), 2);
  EXPECT_EQ(alone.position().step, 1);
}

TEST(TrainingState, ATargetThatIsReachedEndsIt) {
  const Config config{.batch_size = 10, .epochs = 2};
  TrainingState state(config, kImages, 1);
  state.place.reached_target = true;
  EXPECT_TRUE(state.Done());
}

TEST(TrainingState, AnEvaluationIsDueAfterItsInterval) {
  const Config config{.batch_size = 10, .epochs = 2, .eval_every = 1};
  TrainingState state(config, kImages, 1);
  const EpochPlan epoch = state.BeginEpoch({0, 1});
  for (std::int64_t batch = 0; batch < 3; ++batch) {
    state.EndStep(epoch, batch);
    EXPECT_EQ(state.EvaluationIsDue(), batch == 2) << batch;
  }
}

TEST(StepCounter, CountsWhatLiesBetween) {
  const StepClock clock;
  StepCounter counter(clock);
  const StepResult result{.loss = {}, .samples = 8, .own_samples = 4, .data_wait_seconds = 0.5};
  counter.Add(result);
  const StepCounter::Counts before = counter.Now();
  counter.Add(result);
  counter.Add(result);
  const StepCounter::Counts since = counter.Now() - before;
  EXPECT_EQ(since.steps, 2);
  EXPECT_EQ(since.images, 16);
  EXPECT_EQ(since.own_images, 8);
  EXPECT_EQ(since.data_wait_seconds, 1);
  EXPECT_GE(since.time.count(), 0);
}

TEST(StepCounter, LeavesOutWhatIsNoTraining) {
  const StepClock clock;
  StepCounter counter(clock);
  counter.LeaveOut(std::chrono::hours(1));
  EXPECT_LT(counter.Now().time, -std::chrono::minutes(59));
}

}  // namespace
}  // namespace ddprun
