// SPDX-License-Identifier: Apache-2.0
// Which ranks have called another collective, or have not begun the one that the others wait in.
#include "rendezvous/values/divergence.h"

#include <gtest/gtest.h>

#include "rendezvous/values/collectives.h"

namespace ddprun {
namespace {

using Ranges = std::vector<RankRange>;

Collective Call(std::int64_t number, const std::string& name, std::int64_t bytes = 64,
                const std::string& group = "0") {
  return {group, number, name, bytes, "float32"};
}

std::vector<RanksInPlace> Places(const std::vector<CollectivePlace>& by_rank) {
  std::vector<RanksInPlace> places;
  for (std::size_t i = 0; i < by_rank.size(); ++i)
    AddPlace(static_cast<int>(i), by_rank[i], places);
  return places;
}

const Collective kReduce7 = Call(7, "all_reduce");
const Collective kBroadcast8 = Call(8, "broadcast");
const Collective kGather9 = Call(9, "all_gather");

TEST(DivergenceTest, ThereIsNoneWhereRanksAgreeOrNoneWaits) {
  EXPECT_FALSE(FindDivergence({}));
  const CollectivePlace waits{kBroadcast8, {kReduce7}};
  EXPECT_FALSE(FindDivergence(Places({waits, waits})));
  const CollectivePlace calm{std::nullopt, {kReduce7}};
  EXPECT_FALSE(FindDivergence(Places({calm, CollectivePlace{std::nullopt, {kBroadcast8}}})));
}

// The ranks that have passed a broadcast wait in the next one: most of them do, and rank 2 is odd.
TEST(DivergenceTest, TheFirstCallThatDiffersCountsAndNotTheOneThatMostWaitIn) {
  const CollectivePlace past{kGather9, {kReduce7, kBroadcast8}};
  const CollectivePlace root{kBroadcast8, {kReduce7}};
  const CollectivePlace odd{Call(8, "all_gather"), {kReduce7}};
  const auto found = FindDivergence(Places({root, past, odd, past}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (Ranges{{2, 2}}));
  EXPECT_EQ(found->others, (Ranges{{0, 1}, {3, 3}}));
  EXPECT_EQ(found->expected.name, "broadcast");
  EXPECT_EQ(found->called->name, "all_gather");
}

TEST(DivergenceTest, ACallOfAnotherSizeIsFoundAmongThoseThatAreDone) {
  const CollectivePlace waits{kGather9, {kReduce7, kBroadcast8}};
  const CollectivePlace odd{std::nullopt, {kReduce7, Call(8, "broadcast", 68)}};
  const std::vector<RanksInPlace> places = Places({waits, waits, odd});
  ASSERT_TRUE(FindDivergence(places));
  EXPECT_EQ(ToSentence(places),
            "rank 2 has called broadcast 8 (68 bytes float32) where ranks 0-1 have called "
            "broadcast 8 (64 bytes float32)");
}

TEST(DivergenceTest, SizesThatReadAlikeAreShownInBytes) {
  const CollectivePlace waits{Call(8, "broadcast", 4732), {kReduce7}};
  const CollectivePlace odd{Call(8, "broadcast", 4736), {kReduce7}};
  EXPECT_EQ(
      ToSentence(Places({odd, waits})),
      "rank 0 has called broadcast 8 (4736 bytes float32) where rank 1 has called broadcast 8 "
      "(4732 bytes float32)");
}

TEST(DivergenceTest, RanksMayGiveDifferentSizesWhereTheCollectiveAllowsIt) {
  const CollectivePlace waits{kGather9, {Call(8, "all_to_all_single", 10)}};
  const CollectivePlace other{kGather9, {Call(8, "all_to_all_single", 20)}};
  EXPECT_FALSE(FindDivergence(Places({waits, other})));
}

TEST(DivergenceTest, ARankThatHasNotBegunTheEarliestOneIsTheOdd) {
  const CollectivePlace root{kBroadcast8, {kReduce7}};
  const CollectivePlace past{kGather9, {kReduce7, kBroadcast8}};
  const CollectivePlace asleep{std::nullopt, {kReduce7}};
  const std::vector<RanksInPlace> places = Places({past, root, asleep, past});
  const auto found = FindDivergence(places);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (Ranges{{2, 2}}));
  EXPECT_FALSE(found->called);
  EXPECT_EQ(ToSentence(places),
            "rank 1 waits in broadcast 8 (64 bytes float32); rank 2 has not begun it: its last was "
            "all_reduce 7; ranks 0, 3 wait in all_gather 9 (64 bytes float32)");
}

TEST(DivergenceTest, ARankThatWaitsInAnotherGroupIsTheOdd) {
  const CollectivePlace waits{kBroadcast8, {kReduce7}};
  const CollectivePlace elsewhere{Call(1, "broadcast", 64, "row"), {kReduce7}};
  const auto found = FindDivergence(Places({waits, elsewhere, waits}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (Ranges{{1, 1}}));
}

TEST(DivergenceTest, OneOfWhichNothingIsKnownIsNotBlamed) {
  const CollectivePlace waits{kBroadcast8, {kReduce7}};
  EXPECT_FALSE(FindDivergence(Places({waits, CollectivePlace{}})));
}

}  // namespace
}  // namespace ddprun
