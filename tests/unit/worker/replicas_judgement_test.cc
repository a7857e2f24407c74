// SPDX-License-Identifier: Apache-2.0
#include "worker/train/replicas/judgement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ReplicaSums Sums(std::int64_t state, std::int64_t steps = 0) {
  return {.state = state, .steps = steps};
}

TEST(Judge, AgreesWhereAllAreAlike) {
  EXPECT_TRUE(Judge({Sums(7)}).agree);
  EXPECT_TRUE(Judge({Sums(7, 1), Sums(7, 1), Sums(7, 1)}).agree);
}

TEST(Judge, NamesTheRankUnlikeTheMajority) {
  const Judgement judgement = Judge({Sums(7), Sums(7), Sums(8)});
  EXPECT_FALSE(judgement.agree);
  EXPECT_THAT(judgement.odd, ElementsAre(2));
  EXPECT_THAT(Judge({Sums(6), Sums(7), Sums(7), Sums(8)}).odd, ElementsAre(0, 3));
}

TEST(Judge, SeesDamageThatOnlyTheStepsShow) {
  EXPECT_THAT(Judge({Sums(7, 1), Sums(7, 2), Sums(7, 1)}).odd, ElementsAre(1));
}

TEST(Judge, NamesNobodyWithoutAMajority) {
  EXPECT_FALSE(Judge({Sums(7), Sums(8)}).agree);
  EXPECT_THAT(Judge({Sums(7), Sums(8)}).odd, IsEmpty());
  EXPECT_THAT(Judge({Sums(7), Sums(8), Sums(9)}).odd, IsEmpty());
  EXPECT_THAT(Judge({Sums(7), Sums(8), Sums(7), Sums(8)}).odd, IsEmpty());
}

TEST(Judge, DoesNotAgreeOnALossThatIsNotFinite) {
  const Judgement judgement = Judge({Sums(7), {.state = 7, .not_finite = 3}});
  EXPECT_FALSE(judgement.agree);
  EXPECT_TRUE(judgement.alike);
  EXPECT_THAT(judgement.odd, IsEmpty());
}

TEST(FirstToDiffer, IsTheRankWhoseValuesChangedFirst) {
  EXPECT_EQ(FirstToDiffer({6, 5}), 1);
  EXPECT_EQ(FirstToDiffer({9, kNeverDiffered, 10}), 0);
}

TEST(FirstToDiffer, IsNobodyWhereSeveralOrNoneDiffer) {
  EXPECT_EQ(FirstToDiffer({5, 5}), std::nullopt);
  EXPECT_EQ(FirstToDiffer({kNeverDiffered, kNeverDiffered}), std::nullopt);
}

}  // namespace
}  // namespace ddprun
