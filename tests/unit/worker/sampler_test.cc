// SPDX-License-Identifier: Apache-2.0
#include "worker/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// The numbers are what PyTorch 2.11 printed for
//   s = DistributedSampler(range(N), WORLD, RANK, shuffle=True, seed=SEED); s.set_epoch(EPOCH);
//   print(list(s))

TEST(TrainingIndices, ArePythonsForEachRank) {
  EXPECT_THAT(TrainingIndices(10, {0, 2}, 0, 0), ElementsAre(4, 7, 3, 0, 6));
  EXPECT_THAT(TrainingIndices(10, {1, 2}, 0, 0), ElementsAre(1, 5, 9, 8, 2));
}

TEST(TrainingIndices, ArePythonsAfterSetEpoch) {
  EXPECT_THAT(TrainingIndices(10, {0, 2}, 0, 1), ElementsAre(5, 1, 0, 9, 7));
  EXPECT_THAT(TrainingIndices(10, {1, 2}, 0, 1), ElementsAre(6, 2, 8, 3, 4));
}

TEST(TrainingIndices, ArePythonsWhereTheWorldDoesNotDivide) {
  EXPECT_THAT(TrainingIndices(11, {0, 3}, 7, 2), ElementsAre(4, 8, 0, 10));
  EXPECT_THAT(TrainingIndices(11, {1, 3}, 7, 2), ElementsAre(9, 3, 1, 6));
  EXPECT_THAT(TrainingIndices(11, {2, 3}, 7, 2), ElementsAre(2, 7, 5, 4));
}

TEST(TrainingIndices, ArePythonsWithMoreRanksThanImages) {
  EXPECT_THAT(TrainingIndices(2, {0, 5}, 0, 0), ElementsAre(0));
  EXPECT_THAT(TrainingIndices(2, {1, 5}, 0, 0), ElementsAre(1));
  EXPECT_THAT(TrainingIndices(2, {4, 5}, 0, 0), ElementsAre(0));
}

TEST(TrainingIndices, ArePythonsForALongerList) {
  auto indices = TrainingIndices(1000, {3, 4}, 123, 9);
  EXPECT_THAT(indices, SizeIs(250));
  indices.resize(6);
  EXPECT_THAT(indices, ElementsAre(475, 874, 370, 945, 86, 577));
}

TEST(EvaluationIndices, AreThereOnceOverAllRanks) {
  std::vector<std::int64_t> all;
  for (int rank = 0; rank < 4; ++rank) {
    for (const auto index : EvaluationIndices(10, {rank, 4})) all.push_back(index);
  }
  std::sort(all.begin(), all.end());
  EXPECT_THAT(all, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST(EvaluationIndices, MayBeNone) { EXPECT_THAT(EvaluationIndices(2, {3, 4}), SizeIs(0)); }

}  // namespace
}  // namespace ddprun
