// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "worker/train/app/tuning.h"

namespace ddprun {
namespace {

using testing::ElementsAre;

// A machine with a speed, and a memory, for each trial.
struct Machine {
  std::function<double(const TuneTrial&)> speed;
  std::int64_t batch_max = 1 << 30;  // larger ones do not fit
  bool foresees = false;             // that the next one does not
  double seconds = 1;                // of a trial
};

std::vector<TuneResult> Tune(const TuneGiven& given, const Machine& machine) {
  std::vector<TuneResult> results;
  while (const auto trial = NextTrial(given, results)) {
    if (results.size() >= 100) {
      ADD_FAILURE() << "it does not end";
      break;
    }
    const bool fits = trial->batch_size <= machine.batch_max;
    results.push_back(
        {.trial = *trial,
         .images_per_second = fits ? machine.speed(*trial) : 0,
         .seconds = machine.seconds,
         .twice_fits = !machine.foresees || 2 * trial->batch_size <= machine.batch_max});
  }
  return results;
}

std::vector<std::int64_t> Batches(const std::vector<TuneResult>& results) {
  std::vector<std::int64_t> batches;
  for (const TuneResult& result : results) {
    if (batches.empty() || batches.back() != result.trial.batch_size)
      batches.push_back(result.trial.batch_size);
  }
  return batches;
}

TuneGiven Given() {
  return {.first = {.batch_size = 8, .channels_last = false, .loader_threads = 2},
          .batch_max = 1'000'000,
          .threads_max = 4,
          .seconds = 1000};
}

TEST(Tuning, BatchesGrowUntilOneDoesNotFit) {
  const auto results =
      Tune(Given(), {.speed = [](const TuneTrial&) { return 100; }, .batch_max = 40});
  EXPECT_THAT(Batches(results), ElementsAre(8, 16, 32, 64, 8));
  EXPECT_EQ(LargestBatch(results), 32);
  EXPECT_EQ(ToRow(results[3]), "        64             no               2     does not fit\n");
  EXPECT_EQ(ToRow(results[2]), "        32             no               2              100\n");
}

TEST(Tuning, WhatIsForeseenNotToFitIsNotTried) {
  const auto results = Tune(
      Given(), {.speed = [](const TuneTrial&) { return 100; }, .batch_max = 40, .foresees = true});
  EXPECT_THAT(Batches(results), ElementsAre(8, 16, 32, 8));
}

TEST(Tuning, NoBatchIsLargerThanTheDataSet) {
  TuneGiven given = Given();
  given.batch_max = 20;
  EXPECT_THAT(Batches(Tune(given, {.speed = [](const TuneTrial&) { return 100; }})),
              ElementsAre(8, 16, 8));
}

TEST(Tuning, BatchesTakeHalfTheTimeAtMost) {
  TuneGiven given = Given();
  given.seconds = 10;
  const auto results =
      Tune(given,
           {.speed = [](const TuneTrial& trial) { return static_cast<double>(trial.batch_size); }});
  // The fifth is expected to take two seconds, and would end after half the time.
  EXPECT_THAT(Batches(results), ElementsAre(8, 16, 32, 64));
  EXPECT_LE(results.size(), 10u);
}

TEST(Tuning, WithoutTimeTheFirstTrialIsAllThereIs) {
  TuneGiven given = Given();
  given.seconds = 1;
  const auto results = Tune(given, {.speed = [](const TuneTrial&) { return 5; }});
  EXPECT_EQ(results.size(), 1u);
  EXPECT_EQ(Recommended(results).trial, given.first);
}

TEST(Tuning, TheSmallestBatchThatIsAsFastIsRecommended) {
  const auto results =
      Tune(Given(), {.speed =
                         [](const TuneTrial& trial) {
                           return trial.batch_size == 8 ? 50 : trial.batch_size == 16 ? 96 : 100;
                         },
                     .batch_max = 64});
  EXPECT_EQ(Recommended(results).trial.batch_size, 16);
}

TEST(Tuning, FormatAndThreadsAreTriedWithTheBestBatch) {
  const auto results = Tune(Given(), {.speed =
                                          [](const TuneTrial& trial) {
                                            return (trial.channels_last ? 2.0 : 1.0) *
                                                   static_cast<double>(trial.loader_threads) *
                                                   (trial.batch_size >= 16 ? 10 : 1);
                                          },
                                      .batch_max = 64});
  EXPECT_EQ(Recommended(results).trial,
            (TuneTrial{.batch_size = 16, .channels_last = true, .loader_threads = 4}));
  EXPECT_EQ(ToFlags(Recommended(results).trial),
            "--batch-size 16 --channels-last --loader-threads 4");
}

TEST(Tuning, FewerThreadsThatAreAsFastAreRecommended) {
  const auto results =
      Tune(Given(), {.speed = [](const TuneTrial&) { return 100; }, .batch_max = 8});
  EXPECT_EQ(Recommended(results).trial,
            (TuneTrial{.batch_size = 8, .channels_last = false, .loader_threads = 1}));
}

TEST(Tuning, WithoutALoaderOrImagesOnlyBatchesAreTried) {
  TuneGiven given = Given();
  given.has_layouts = false;
  given.threads_max = 0;
  const auto results =
      Tune(given, {.speed = [](const TuneTrial&) { return 100; }, .batch_max = 16});
  EXPECT_EQ(results.size(), 3u);
}

TEST(Tuning, NothingFits) {
  const auto results =
      Tune(Given(), {.speed = [](const TuneTrial&) { return 100; }, .batch_max = 4});
  EXPECT_EQ(results.size(), 1u);
  EXPECT_EQ(LargestBatch(results), 0);
}

}  // namespace
}  // namespace ddprun
