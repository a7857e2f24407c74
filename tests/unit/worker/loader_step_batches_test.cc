// SPDX-License-Identifier: Apache-2.0
#include "worker/train/loader/step_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::ElementsAre;

EpochPlan PlanOf(int rank, std::int64_t consumed = 0) {
  return EpochPlan({.size = 100, .shard = {rank, 3}, .batch_size = 8, .consumed = consumed});
}

TEST(StepBatches, FullOnesCountAlike) {
  const StepShares shares = SharesOf(PlanOf(1), {.first = 0, .count = 2}, /*accumulate=*/2);
  EXPECT_TRUE(shares.full);
  EXPECT_THAT(shares.own, ElementsAre(8, 8));
  EXPECT_EQ(shares.samples, 48);
  EXPECT_EQ(shares.own_samples, 16);
  EXPECT_THAT(shares.weights, ElementsAre(0.5, 0.5));
}

// The mean of the weights over the ranks, summed over the batches, is 1: so many samples, so much
// weight.
TEST(StepBatches, EachSampleOfAStepCountsAlike) {
  for (const std::int64_t consumed : {0, 50, 95, 99}) {
    const std::int64_t batches = PlanOf(0, consumed).batches();
    for (std::int64_t first = 0; first < batches; first += 2) {
      const StepBatches step{.first = first, .count = std::min<std::int64_t>(2, batches - first)};
      double weight = 0;
      std::int64_t samples = 0;
      std::int64_t of_all = 0;
      for (int rank = 0; rank < 3; ++rank) {
        const StepShares shares = SharesOf(PlanOf(rank, consumed), step, 2);
        ASSERT_EQ(shares.weights.size(), static_cast<std::size_t>(step.count));
        for (std::size_t i = 0; i < shares.weights.size(); ++i) {
          weight += shares.weights[i];
          EXPECT_NEAR(shares.weights[i] * static_cast<double>(shares.samples),
                      3.0 * static_cast<double>(shares.own[i]), 1e-9);
        }
        samples += shares.own_samples;
        of_all = shares.samples;
      }
      EXPECT_EQ(samples, of_all);
      EXPECT_NEAR(weight, 3, 1e-9) << "from batch " << first << " after " << consumed;
    }
  }
}

TEST(StepBatches, AreNotFullIfOneRankOrOneBatchIsShort) {
  const std::int64_t last = PlanOf(0).batches() - 1;
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(SharesOf(PlanOf(rank), {.first = last, .count = 1}, 1).full) << "on all ranks";
    EXPECT_TRUE(SharesOf(PlanOf(rank), {.first = 0, .count = 1}, 1).full);
    EXPECT_FALSE(SharesOf(PlanOf(rank), {.first = 0, .count = 1}, 2).full) << "of two batches";
  }
}

}  // namespace
}  // namespace ddprun
