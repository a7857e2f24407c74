// SPDX-License-Identifier: Apache-2.0
// Ranks that are slower than their peers, as nodes report them, and nodes that leave for that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/membership/operator_rules.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr RoundId kFirst{1};
constexpr RoundId kSecond{2};

// Nodes a and b of two ranks each; later ones stand by.
class SlowRankTest : public ::testing::Test {
 protected:
  void Begin(JoinOptions of_b = {}) {
    a = run.Joins("a", options);
    of_b.local_world_size = 2;
    b = run.Joins("b", of_b);
    ASSERT_EQ(run.state.phase, RunPhase::kSealed);
  }
  // The words of the notice that follows; empty: none does.
  std::string Report(LinkId link, std::int64_t rank, double slowness, RoundId round = kFirst) {
    run.Reports(link, Heartbeat{round, {.step = 3, .slow_rank = rank, .slowness = slowness}});
    for (const RunNotice& note : run.notes) {
      if (note.kind == NoticeKind::kRankSlow || note.kind == NoticeKind::kRankNormal) {
        noticed = note;
        return note.words;
      }
    }
    return "";
  }

  TestRun run;
  JoinOptions options{.local_world_size = 2};
  LinkId a{}, b{};
  RunNotice noticed;
};

TEST_F(SlowRankTest, IsToldOnceAndWhenItIsOver) {
  Begin();
  EXPECT_EQ(Report(b, -1, 0), "");
  EXPECT_EQ(Report(b, 3, 2.06),
            "rank 3 on host b needs 2.1 times as long for a step as its peers; look at that "
            "machine");
  EXPECT_EQ(noticed.kind, NoticeKind::kRankSlow);
  EXPECT_EQ(noticed.rank, 3);
  EXPECT_EQ(Report(b, 3, 2.3), "");
  EXPECT_EQ(Report(b, -1, 0), "rank 3 on host b is as fast as its peers again");
  EXPECT_EQ(noticed.kind, NoticeKind::kRankNormal);
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

TEST_F(SlowRankTest, ANodeReportsItsOwnRanksAndRoundOnly) {
  Begin();
  EXPECT_EQ(Report(b, 0, 2), "");
  EXPECT_EQ(Report(b, 4, 2), "");
  EXPECT_EQ(Report(b, 2, 2, kSecond), "");
}

TEST_F(SlowRankTest, ASpareTakesThePlaceOfANodeThatIsToLeave) {
  Begin({.evict_stragglers = true});
  const LinkId c = run.Joins("c", options);
  EXPECT_EQ(Report(b, 2, 2),
            "rank 2 on host b needs 2.0 times as long for a step as its peers; node b (node rank "
            "1) leaves, its 2 workers are stopped; node c takes its place");
  ASSERT_TRUE(run.Sent<Stop>(a) && run.Sent<Stop>(b));
  EXPECT_EQ(ToSentence(run.Sent<Stop>(a)->cause),
            "node b (node rank 1) was drained by --evict-stragglers: rank 2 on host b needs 2.0 "
            "times as long for a step as its peers");
  run.Reports(a, NodeStopped{kFirst, 1});
  run.Reports(b, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Finish>(b)->verdict.exit_code, 0);
  EXPECT_EQ(run.Sent<Start>(c)->node_rank, 1);
  EXPECT_EQ(run.Sent<Start>(a)->restart_count, 0);
}

TEST_F(SlowRankTest, WithoutASpareItStays) {
  Begin({.evict_stragglers = true});
  EXPECT_THAT(Report(b, 2, 2), HasSubstr("the run needs, and none stands by"));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  EXPECT_TRUE(run.state.members.at(NodeId{"id-b"}).drained_by.empty());
}

TEST_F(SlowRankTest, TheNodeThatHostsTheServiceStays) {
  Begin({.hosts_service = true, .evict_stragglers = true});
  run.Joins("c", options);
  EXPECT_THAT(Report(b, 2, 2), HasSubstr("hosts the run's rendezvous service"));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

}  // namespace
}  // namespace ddprun
