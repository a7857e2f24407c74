// SPDX-License-Identifier: Apache-2.0
// Who waits for whom, and how that is said.
#include "rendezvous/values/collectives.h"

#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"
#include "rendezvous/values/first_cause.h"

namespace ddprun {
namespace {

CollectivePlace WaitsIn(std::int64_t number, const std::string& name = "all_reduce") {
  return {Collective{"0", number, name, 4 << 20, "float32"}, {{"0", number - 1, "all_reduce"}}};
}

CollectivePlace Did(std::int64_t number) { return {std::nullopt, {{"0", number, "all_reduce"}}}; }

std::string Sentence(const std::vector<CollectivePlace>& by_rank) {
  std::vector<RanksInPlace> places;
  for (std::size_t i = 0; i < by_rank.size(); ++i)
    AddPlace(static_cast<int>(i), by_rank[i], places);
  return ToSentence(places);
}

TEST(CollectivesTest, TheOddOneOutIsNamed) {
  EXPECT_EQ(Sentence({WaitsIn(57), WaitsIn(57), Did(56), WaitsIn(57)}),
            "ranks 0-1, 3 wait in all_reduce 57 (4 MiB float32); "
            "rank 2 has not begun it: its last was all_reduce 56");
  EXPECT_EQ(Sentence({Did(56), WaitsIn(57), Did(56), Did(57)}),
            "rank 1 waits in all_reduce 57 (4 MiB float32); "
            "ranks 0, 2 have not begun it: their last was all_reduce 56; "
            "rank 3 is past it: its last was all_reduce 57");
}

TEST(CollectivesTest, RanksInDifferentCollectivesAreNamedWithBoth) {
  EXPECT_EQ(
      Sentence({WaitsIn(57), WaitsIn(57), WaitsIn(57, "broadcast")}),
      "rank 2 has called broadcast 57 (4 MiB float32) where ranks 0-1 have called all_reduce 57 "
      "(4 MiB float32)");
  EXPECT_EQ(Sentence({WaitsIn(57), WaitsIn(57), WaitsIn(55)}),
            "ranks 0-1 wait in all_reduce 57 (4 MiB float32); "
            "rank 2 waits in all_reduce 55 (4 MiB float32)");
}

TEST(CollectivesTest, RanksThatWaitInOneCollectiveAreTogetherWhateverElseTheyHaveDone) {
  CollectivePlace row = WaitsIn(57);
  row.last.push_back({"row", 3, "broadcast"});
  CollectivePlace column = WaitsIn(57);
  column.last.push_back({"column", 9, "all_gather"});
  EXPECT_EQ(Sentence({WaitsIn(58), row, column, WaitsIn(58), row}),
            "ranks 1-2, 4 wait in all_reduce 57 (4 MiB float32); "
            "ranks 0, 3 wait in all_reduce 58 (4 MiB float32)");
}

TEST(CollectivesTest, RanksOutsideAGroupAreNotMissedInIt) {
  const Collective in{"row", 3, "broadcast", 12};
  const CollectivePlace waits{in, {{"0", 5, "all_reduce"}, {"row", 2, "broadcast"}}};
  const CollectivePlace outside{std::nullopt, {{"0", 5, "all_reduce"}}};
  const CollectivePlace member{std::nullopt, {{"0", 5, "all_reduce"}, {"row", 0, "-"}}};
  EXPECT_FALSE(IsBehind(outside, waits));
  EXPECT_TRUE(IsBehind(member, waits));
  EXPECT_EQ(Sentence({waits, outside, member}),
            "rank 0 waits in broadcast 3 (12 bytes) of group row; "
            "rank 2 has begun none of that group");
}

TEST(CollectivesTest, ASentenceNamesSomeOfManyPlaces) {
  std::vector<CollectivePlace> many(30, WaitsIn(57));
  for (int i = 0; i < 20; ++i) many.push_back(WaitsIn(100 + i));
  const std::string text = Sentence(many);
  EXPECT_NE(text.find("; rank 37 waits in all_reduce 107"), text.npos);
  EXPECT_EQ(text.find("rank 38"), text.npos);
  EXPECT_NE(text.find("; and 12 more"), text.npos);
}

TEST(CollectivesTest, WhoSaysNothingOrIsInAnotherGroupIsNamedAsSuch) {
  CollectivePlace stage{Collective{"stage", 3, "broadcast", 12}, {}};
  EXPECT_EQ(Sentence({stage, stage, CollectivePlace{}, Did(5)}),
            "ranks 0-1 wait in broadcast 3 (12 bytes) of group stage; "
            "rank 2 has reported no collective");
  EXPECT_EQ(Sentence({{Collective{"0", 0, "recv"}, {}}, Did(5)}),
            "rank 0 waits in recv; rank 1 does not wait: its last was all_reduce 5");
}

TEST(CollectivesTest, AStepThatIsAGraphIsNamedByItsNumber) {
  const auto graph = [](std::int64_t step) { return Collective{kGraphStep, step, kGraphStep}; };
  const CollectivePlace waits{graph(57), {graph(56), {"0", 12, "all_reduce"}}};
  const CollectivePlace before{std::nullopt, {graph(56), {"0", 12, "all_reduce"}}};
  EXPECT_EQ(Sentence({waits, waits, before}),
            "ranks 0-1 wait in the graph of step 57; rank 2 has not begun it: its last was the "
            "graph of step 56");
  EXPECT_TRUE(IsBehind(before, waits));
  EXPECT_EQ(Sentence({{graph(0), {}}, {graph(0), {}}}),
            "ranks 0-1 wait in the graph of a warm-up step");
}

TEST(CollectivesTest, NothingIsSaidWhereNobodyWaits) {
  EXPECT_EQ(Sentence({}), "");
  EXPECT_EQ(Sentence({Did(5), CollectivePlace{}}), "");
}

TEST(CollectivesTest, PlacesOfAllNodesComeTogetherAndAreLimited) {
  std::vector<RanksInPlace> ours;
  std::vector<RanksInPlace> theirs;
  for (int rank = 0; rank < 8; ++rank) AddPlace(rank, WaitsIn(9), ours);
  for (int rank = 8; rank < 16; ++rank) AddPlace(rank, rank == 12 ? Did(8) : WaitsIn(9), theirs);
  MergePlaces(theirs, ours);
  MergePlaces(theirs, ours);  // told again
  EXPECT_EQ(ToSentence(ours),
            "ranks 0-11, 13-15 wait in all_reduce 9 (4 MiB float32); "
            "rank 12 has not begun it: its last was all_reduce 8");
  for (int rank = 0; rank < 1000; ++rank) AddPlace(rank, Did(rank + 100), ours);
  EXPECT_EQ(ours.size(), kCollectivePlacesMax);
  std::vector<RanksInPlace> gaps;
  for (int rank = 0; rank < 1000; rank += 2) AddPlace(rank, Did(1), gaps);
  EXPECT_EQ(gaps[0].ranks.size(), kOutcomeRangesShown);
}

TEST(CollectivesTest, BehindIsWhoHasNotBegunWhatTheOtherWaitsIn) {
  EXPECT_TRUE(IsBehind(Did(56), WaitsIn(57)));
  EXPECT_TRUE(IsBehind(WaitsIn(56), WaitsIn(57)));
  EXPECT_TRUE(IsBehind(CollectivePlace{}, WaitsIn(57)));
  EXPECT_FALSE(IsBehind(WaitsIn(57), Did(56)));
  EXPECT_FALSE(IsBehind(WaitsIn(57), WaitsIn(57)));
  EXPECT_FALSE(IsBehind(Did(57), WaitsIn(57)));
  EXPECT_FALSE(IsBehind(Did(56), Did(57)));
}

Failure HungIn(int rank, const CollectivePlace& place) {
  Failure failure;
  failure.kind = FailureKind::kWorkerHung;
  failure.rank = rank;
  failure.hang = Hang{.step = 17};
  AddPlace(rank, place, failure.places);
  return failure;
}

TEST(CollectivesTest, OfTwoHungWorkersInOneStepTheOneThatIsWaitedForIsTheCause) {
  const Failure waits = HungIn(0, WaitsIn(57));
  Failure behind = HungIn(1, Did(56));
  EXPECT_TRUE(TakesThePlaceOf(behind, waits));
  EXPECT_FALSE(TakesThePlaceOf(waits, behind));
  LearnFrom(waits, behind);
  EXPECT_EQ(ToSentence(behind.places),
            "rank 0 waits in all_reduce 57 (4 MiB float32); "
            "rank 1 has not begun it: its last was all_reduce 56");
}

}  // namespace
}  // namespace ddprun
