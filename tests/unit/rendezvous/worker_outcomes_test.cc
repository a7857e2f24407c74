// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/worker_outcomes.h"

#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

std::string TextOf(const std::vector<WorkerOutcomes>& victims) {
  std::string text;
  for (const WorkerOutcomes& way : victims) text += RanksOf(way) + " " + WayOf(way) + "\n";
  return text;
}

TEST(WorkerOutcomesTest, RangesGrowTogetherInAnyOrder) {
  std::vector<WorkerOutcomes> victims;
  for (const RankRange range : {RankRange{8, 15}, {0, 3}, {20, 20}, {4, 7}, {17, 18}, {16, 16}}) {
    AddVictims(EndKind::kStopped, 0, range, victims);
  }
  AddVictims(EndKind::kExited, 1, {19, 19}, victims);
  AddVictims(EndKind::kSignaled, 6, {21, 22}, victims);
  EXPECT_EQ(TextOf(ToShow(victims, -1)),
            "rank 19 exited with code 1\n"
            "ranks 21-22 were killed by SIGABRT\n"
            "ranks 0-18, 20 were stopped by ddprun\n");
}

TEST(WorkerOutcomesTest, TheCauseIsNoVictim) {
  std::vector<WorkerOutcomes> victims;
  AddVictims(EndKind::kExited, 1, {0, 4}, victims);
  AddVictims(EndKind::kSignaled, 9, {5, 5}, victims);
  EXPECT_EQ(TextOf(ToShow(victims, 2)),
            "ranks 0-1, 3-4 exited with code 1\nrank 5 was killed by SIGKILL\n");
  EXPECT_EQ(TextOf(ToShow(victims, 5)), "ranks 0-4 exited with code 1\n");
  EXPECT_EQ(TextOf(ToShow(victims, 0)),
            "ranks 1-4 exited with code 1\nrank 5 was killed by SIGKILL\n");
}

TEST(WorkerOutcomesTest, LostNodesAreNamed) {
  std::vector<WorkerOutcomes> victims;
  AddLostNode("b", {2, 3}, victims);
  EXPECT_EQ(TextOf(ToShow(victims, -1)), "ranks 2-3 were lost with node b\n");
  AddLostNode("c", {4, 5}, victims);
  EXPECT_EQ(TextOf(ToShow(victims, -1)), "ranks 2-5 were lost with nodes b, c\n");
}

TEST(WorkerOutcomesTest, SixteenThousandRanksStayAFewLines) {
  std::vector<WorkerOutcomes> victims;
  for (int rank = 0; rank < 16'384; ++rank) {
    AddVictims(rank % 2 == 0 ? EndKind::kStopped : EndKind::kExited, rank % 2, {rank, rank},
               victims);
  }
  const std::vector<WorkerOutcomes> shown = ToShow(victims, 1);
  ASSERT_EQ(shown.size(), 2u);
  EXPECT_EQ(shown[0].count, 8191);
  EXPECT_EQ(shown[0].ranges.size(), kOutcomeRangesShown);
  EXPECT_EQ(RanksOf(shown[0]),
            "ranks 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33 and 8175 others");
}

TEST(WorkerOutcomesTest, ManyWaysAreToldAsOne) {
  std::vector<WorkerOutcomes> victims;
  for (int rank = 0; rank < 100; ++rank) AddVictims(EndKind::kExited, rank, {rank, rank}, victims);
  EXPECT_LE(victims.size(), kOutcomeWaysMax);
  int count = 0;
  for (const WorkerOutcomes& way : victims) count += way.count;
  EXPECT_EQ(count, 100);
  EXPECT_NE(TextOf(ToShow(victims, -1)).find("ended in other ways"), std::string::npos);
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
