// SPDX-License-Identifier: Apache-2.0
// Ranks whose memory was found to be damaged, as nodes report them, and nodes that leave for that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr RoundId kFirst{1};

// Nodes a and b of two ranks each; later ones stand by.
class DamagedRankTest : public ::testing::Test {
 protected:
  void SetUp() override {
    a = run.Joins("a", options);
    b = run.Joins("b", options);
    ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  }
  // The words of the notice that follows; empty: none does.
  std::string Report(std::int64_t damages, std::int64_t rank = 3) {
    run.Reports(b, Heartbeat{kFirst, {.step = 3, .damages = damages, .damaged_rank = rank}});
    for (const RunNotice& note : run.notes) {
      if (note.kind != NoticeKind::kRankDamaged) continue;
      EXPECT_EQ(note.rank, rank);
      return note.words;
    }
    return "";
  }

  TestRun run;
  JoinOptions options{.local_world_size = 2};
  LinkId a{}, b{};
};

TEST_F(DamagedRankTest, IsToldOnceForEachTime) {
  EXPECT_EQ(Report(-1, -1), "");
  EXPECT_EQ(Report(0, -1), "");
  EXPECT_EQ(Report(1),
            "the memory of rank 3 on host b was found to be damaged; check the memory of that "
            "machine");
  EXPECT_EQ(Report(1), "");
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

TEST_F(DamagedRankTest, ANodeThatIsDamagedTwiceLeavesForASpare) {
  const LinkId c = run.Joins("c", options);
  Report(1);
  EXPECT_THAT(Report(2), HasSubstr("damaged 2 times; node b (node rank 1) leaves"));
  ASSERT_TRUE(run.Sent<Stop>(b));
  EXPECT_EQ(ToSentence(run.Sent<Stop>(b)->cause),
            "node b (node rank 1) was drained by --check-replicas: the memory of rank 3 on host b "
            "was found to be damaged 2 times");
  run.Reports(a, NodeStopped{kFirst, 1});
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Start>(c)->node_rank, 1);
}

TEST_F(DamagedRankTest, WithoutASpareTheEventSaysWhyItStays) {
  Report(1);
  EXPECT_THAT(Report(2), HasSubstr("the run needs, and none stands by"));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

// A worker that was started anew counts from 0, and says so.
TEST_F(DamagedRankTest, TimesAreOfTheNodeAcrossItsWorkers) {
  run.Joins("c", options);
  Report(1);
  EXPECT_EQ(Report(0, -1), "");
  EXPECT_THAT(Report(1), HasSubstr("2 times; node b (node rank 1) leaves"));
}

}  // namespace
}  // namespace ddprun
