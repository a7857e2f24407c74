// SPDX-License-Identifier: Apache-2.0
#include "worker/train/step/best_evaluation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "worker/train/step/training_state.h"

namespace ddprun {
namespace {

TEST(BestEvaluation, IsByAccuracyWithoutKeepBest) {
  const Config config{.patience = 2};
  BestEvaluation best;
  best.Count(config, 10, 0, 2.5);
  EXPECT_EQ(best, (BestEvaluation{.step = 10, .accuracy = 0, .loss = 2.5})) << "the first counts";
  best.Count(config, 20, 0.5, 3);
  EXPECT_EQ(best, (BestEvaluation{.step = 20, .accuracy = 0.5, .loss = 3}));
  best.Count(config, 30, 0.4, 1);
  EXPECT_EQ(best, (BestEvaluation{.step = 20, .accuracy = 0.5, .loss = 3, .since = 1}));
  EXPECT_EQ(Describe(config, best), "accuracy of 50.00 % after step 20");
}

TEST(BestEvaluation, IsByLossIfThatIsKept) {
  const Config config{.keep_best = KeepBest::kLoss};
  BestEvaluation best;
  best.Count(config, 10, 0.5, 1);
  best.Count(config, 20, 0.9, 1.5);
  EXPECT_EQ(best.step, 10);
  best.Count(config, 30, 0.1, 0.5);
  EXPECT_EQ(best.step, 30);
  EXPECT_EQ(Describe(config, best), "loss of 0.5000 after step 30");
}

TEST(BestEvaluation, TheFirstOfEqualsStaysTheBest) {
  for (const KeepBest metric : {KeepBest::kOff, KeepBest::kAccuracy, KeepBest::kLoss}) {
    const Config config{.keep_best = metric};
    BestEvaluation best;
    for (const std::int64_t step : {10, 20, 30}) best.Count(config, step, 0.5, 1);
    EXPECT_EQ(best, (BestEvaluation{.step = 10, .accuracy = 0.5, .loss = 1, .since = 2}));
  }
}

TEST(BestEvaluation, ALossThatIsNotFiniteIsNoCandidate) {
  for (const KeepBest metric : {KeepBest::kAccuracy, KeepBest::kLoss}) {
    const Config config{.keep_best = metric};
    BestEvaluation best;
    best.Count(config, 10, 0.9, std::nan(""));
    best.Count(config, 20, 0.9, HUGE_VAL);
    EXPECT_EQ(best, (BestEvaluation{.since = 2}));
    best.Count(config, 30, 0.1, 2);
    EXPECT_EQ(best.step, 30);
  }
}

TEST(BestEvaluation, PatienceIsEvaluationsInARow) {
  const Config config{.patience = 2};
  BestEvaluation best;
  const auto after = [&](double accuracy) {
    best.Count(config, best.step + best.since + 2, accuracy, 1);
    return IsOutOfPatience(config, best);
  };
  EXPECT_FALSE(after(0.5));
  EXPECT_FALSE(after(0.5));
  EXPECT_FALSE(after(0.6));
  EXPECT_FALSE(after(0.5));
  EXPECT_TRUE(after(0.6));
  EXPECT_FALSE(IsOutOfPatience(Config{}, best)) << "0: without end";
}

TEST(TrainingState, IsDoneWithoutPatienceLeft) {
  const Config config{.batch_size = 10, .epochs = 5, .patience = 3};
  TrainingState state(config, /*train_images=*/100, /*ranks=*/1);
  state.GoOnFrom({.position = {.step = 12}, .best = {.step = 6, .since = 2}});
  EXPECT_FALSE(state.Done());
  state.GoOnFrom({.position = {.step = 15}, .best = {.step = 6, .since = 3}});
  EXPECT_TRUE(state.Done());
}

}  // namespace
}  // namespace ddprun
