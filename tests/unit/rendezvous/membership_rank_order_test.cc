// SPDX-License-Identifier: Apache-2.0
// The order in which nodes get ranks: --rank-order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

JoinOptions By(RankOrder order, std::string topology = "") {
  return {.restarts = 1, .rank_order = order, .topology = std::move(topology)};
}

// The hosts by rank of a run whose nodes join as they are listed.
std::vector<std::string> Ranked(RankOrder order,
                                const std::vector<std::pair<std::string, std::string>>& nodes) {
  TestRun run;
  for (const auto& [host, place] : nodes) {
    JoinOptions options = By(order, place);
    options.nodes = static_cast<int>(nodes.size());
    run.Joins(host, options);
  }
  std::vector<std::string> hosts;
  for (const auto& [rank, id] : run.state.places)
    hosts.push_back(run.state.members.at(id).join.host);
  return hosts;
}

TEST(MembershipRankOrderTest, TheOrderOfJoiningIsTheDefault) {
  EXPECT_THAT(Ranked(RankOrder::kJoin, {{"n10", ""}, {"n2", ""}, {"n1", ""}}),
              ElementsAre("n10", "n2", "n1"));
}

TEST(MembershipRankOrderTest, NumbersInHostNamesAreNumbers) {
  EXPECT_THAT(Ranked(RankOrder::kHost, {{"n10", ""}, {"n2", ""}, {"m3", ""}, {"n1", ""}}),
              ElementsAre("m3", "n1", "n2", "n10"));
  EXPECT_THAT(Ranked(RankOrder::kHost, {{"r2n1", ""}, {"r10n1", ""}, {"r2n010", ""}, {"r2n9", ""}}),
              ElementsAre("r2n1", "r2n9", "r2n010", "r10n1"));
  EXPECT_THAT(
      Ranked(RankOrder::kHost, {{"gpu", ""}, {"1", ""}, {"gpu0", ""}, {"00", ""}, {"0", ""}}),
      ElementsAre("0", "00", "1", "gpu", "gpu0"));
  // Far longer than any integer.
  const std::string zeros(60, '0');
  EXPECT_THAT(
      Ranked(RankOrder::kHost, {{"n2" + zeros, ""}, {"n10" + zeros, ""}, {"n1" + zeros, ""}}),
      ElementsAre("n1" + zeros, "n2" + zeros, "n10" + zeros));
}

TEST(MembershipRankOrderTest, NodesOfOneSwitchAreNeighboursInTheOrderOfTheirNames) {
  EXPECT_THAT(
      Ranked(RankOrder::kTopology,
             {{"n1", "s0.s10"}, {"n12", "s0.s2"}, {"n3", "s0.s10"}, {"n4", "s0.s2"}, {"n5", "s0"}}),
      ElementsAre("n5", "n4", "n12", "n1", "n3"));
}

TEST(MembershipRankOrderTest, NodesOfOneHostAreInTheOrderOfJoining) {
  TestRun run;
  Join second = MakeJoin("n1", By(RankOrder::kHost));
  run.Do(NodeJoined{LinkId{1}, second});
  second.node_id = NodeId{"another"};
  run.Do(NodeJoined{LinkId{2}, second});
  EXPECT_EQ(run.state.places.at(0), NodeId{"id-n1"});
}

TEST(MembershipRankOrderTest, ARankThatIsAskedForIsKept) {
  TestRun run;
  JoinOptions last = By(RankOrder::kHost);
  last.node_rank = 1;
  const LinkId a = run.Joins("n1", last);
  const LinkId b = run.Joins("n2", By(RankOrder::kHost));
  EXPECT_EQ(run.Sent<Start>(a)->node_rank, 1);
  EXPECT_EQ(run.Sent<Start>(b)->node_rank, 0);
}

TEST(MembershipRankOrderTest, RanksAreStickyAndASpareTakesTheHole) {
  TestRun run;
  const LinkId b = run.Joins("n2", By(RankOrder::kHost));
  const LinkId c = run.Joins("n3", By(RankOrder::kHost));
  const LinkId a = run.Joins("n1", By(RankOrder::kHost));  // stands by
  run.Reports(c, Leave{InterruptedBy(15)});
  run.Reports(c, NodeStopped{RoundId{1}, 4000});
  run.Reports(b, NodeStopped{RoundId{1}, 4000});
  EXPECT_EQ(run.Sent<Start>(b)->node_rank, 0);
  EXPECT_EQ(run.Sent<Start>(a)->node_rank, 1);
}

TEST(MembershipRankOrderTest, AllNodesMustHaveOneOrder) {
  TestRun run;
  run.Joins("a", By(RankOrder::kHost));
  EXPECT_EQ(run.RefusalOf(run.Joins("b", By(RankOrder::kTopology, "s1"))),
            "node b was started with --rank-order topology, the run has --rank-order host (set by "
            "node a); start all nodes with the same --rank-order");
  EXPECT_THAT(run.RefusalOf(run.Joins("c", By(RankOrder::kTopology))),
              HasSubstr("without its place"));
}

}  // namespace
}  // namespace ddprun
