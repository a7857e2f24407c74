// SPDX-License-Identifier: Apache-2.0
#include "worker/library/math/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

std::vector<std::int64_t> Order(std::int64_t size, std::uint64_t seed, std::uint64_t epoch) {
  const at::Tensor order = EpochOrder(size, seed, epoch);
  return {order.const_data_ptr<std::int64_t>(), order.const_data_ptr<std::int64_t>() + size};
}

// The numbers are what PyTorch 2.11 printed for
//   s = DistributedSampler(range(N), 1, 0, shuffle=True, seed=SEED); s.set_epoch(EPOCH)
//   print(list(s))
TEST(EpochOrder, IsPythons) {
  EXPECT_THAT(Order(10, 0, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(Order(10, 0, 1), ElementsAre(5, 6, 1, 2, 0, 8, 9, 3, 7, 4));
  EXPECT_THAT(Order(11, 7, 2), ElementsAre(4, 9, 2, 8, 3, 7, 0, 1, 5, 10, 6));
}

TEST(EpochOrder, IsPythonsForALongerList) {
  const auto order = Order(1000, 123, 9);
  std::vector<std::int64_t> of_rank_3_of_4;
  for (std::size_t i = 3; i < 24; i += 4) of_rank_3_of_4.push_back(order[i]);
  EXPECT_THAT(of_rank_3_of_4, ElementsAre(475, 874, 370, 945, 86, 577));
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
