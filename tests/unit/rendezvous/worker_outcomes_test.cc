// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/worker_outcomes.h"

#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

std::string TextOf(const std::vector<WorkerOutcomes>& outcomes) {
  std::string text;
  for (const WorkerOutcomes& way : outcomes) text += RanksOf(way) + " " + WayOf(way) + "\n";
  return text;
}

TEST(WorkerOutcomesTest, RangesGrowTogetherInAnyOrder) {
  std::vector<WorkerOutcomes> outcomes;
  for (const RankRange range : {RankRange{8, 15}, {0, 3}, {20, 20}, {4, 7}, {17, 18}, {16, 16}}) {
    AddOutcome(EndKind::kStopped, 0, range, outcomes);
  }
  AddOutcome(EndKind::kExited, 1, {19, 19}, outcomes);
  AddOutcome(EndKind::kSignaled, 6, {21, 22}, outcomes);
  EXPECT_EQ(TextOf(ToShow(outcomes, -1)),
            "rank 19 exited with code 1\n"
            "ranks 21-22 were killed by SIGABRT\n"
            "ranks 0-18, 20 were stopped by ddprun\n");
}

TEST(WorkerOutcomesTest, TheCauseIsNoVictim) {
  std::vector<WorkerOutcomes> outcomes;
  AddOutcome(EndKind::kExited, 1, {0, 4}, outcomes);
  AddOutcome(EndKind::kSignaled, 9, {5, 5}, outcomes);
  EXPECT_EQ(TextOf(ToShow(outcomes, 2)),
            "ranks 0-1, 3-4 exited with code 1\nrank 5 was killed by SIGKILL\n");
  EXPECT_EQ(TextOf(ToShow(outcomes, 5)), "ranks 0-4 exited with code 1\n");
  EXPECT_EQ(TextOf(ToShow(outcomes, 0)),
            "ranks 1-4 exited with code 1\nrank 5 was killed by SIGKILL\n");
}

TEST(WorkerOutcomesTest, LostNodesAreNamed) {
  std::vector<WorkerOutcomes> outcomes;
  AddLostNode("b", {2, 3}, outcomes);
  EXPECT_EQ(TextOf(ToShow(outcomes, -1)), "ranks 2-3 were lost with node b\n");
  AddLostNode("c", {4, 5}, outcomes);
  EXPECT_EQ(TextOf(ToShow(outcomes, -1)), "ranks 2-5 were lost with nodes b, c\n");
}

TEST(WorkerOutcomesTest, SixteenThousandRanksStayAFewLines) {
  std::vector<WorkerOutcomes> outcomes;
  for (int rank = 0; rank < 16'384; ++rank) {
    AddOutcome(rank % 2 == 0 ? EndKind::kStopped : EndKind::kExited, rank % 2, {rank, rank},
               outcomes);
  }
  const std::vector<WorkerOutcomes> shown = ToShow(outcomes, 1);
  ASSERT_EQ(shown.size(), 2u);
  EXPECT_EQ(shown[0].count, 8191);
  EXPECT_EQ(shown[0].ranges.size(), kOutcomeRangesShown);
  EXPECT_EQ(RanksOf(shown[0]),
            "ranks 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33 and 8175 others");
}

TEST(WorkerOutcomesTest, ManyWaysAreToldAsOne) {
  std::vector<WorkerOutcomes> outcomes;
  for (int rank = 0; rank < 100; ++rank) AddOutcome(EndKind::kExited, rank, {rank, rank}, outcomes);
  EXPECT_LE(outcomes.size(), kOutcomeWaysMax);
  int count = 0;
  for (const WorkerOutcomes& way : outcomes) count += way.count;
  EXPECT_EQ(count, 100);
  EXPECT_NE(TextOf(ToShow(outcomes, -1)).find("ended in other ways"), std::string::npos);
}

TEST(WorkerOutcomesTest, EndsOfANodeAreFolded) {
  std::vector<WorkerEnds> ends;
  for (const int rank : {3, 0, 2, 1}) ends.push_back({.kind = EndKind::kStopped, .first = rank});
  ends.push_back({.kind = EndKind::kExited, .code = 1, .first = 4});
  const std::vector<WorkerEnds> folded = Folded(ends);
  ASSERT_EQ(folded.size(), 2u);
  EXPECT_EQ(folded[0], (WorkerEnds{EndKind::kStopped, 0, 0, 4}));
  EXPECT_EQ(folded[1], (WorkerEnds{EndKind::kExited, 1, 4, 1}));
}

}  // namespace
}  // namespace ddprun
