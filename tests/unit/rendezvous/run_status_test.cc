// SPDX-License-Identifier: Apache-2.0
// What people are told of a run, in each of its phases.
#include "rendezvous/observe/run_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr RoundId kFirst{1};
constexpr std::size_t kAll = 100;

// A run of two places, with one restart; `c` is a spare.
class RunStatusTest : public ::testing::Test {
 protected:
  LinkId Join(const std::string& host, int local_world_size = 1) {
    return run.Joins(host,
                     {.restarts = 1, .local_world_size = local_world_size, .lease = seconds(10)});
  }
  RunStatus Status(std::size_t nodes_max = kAll) const {
    return StatusOf(run.state, run.now, nodes_max);
  }
  std::vector<NodeState> States() const {
    std::vector<NodeState> states;
    for (const NodeStatus& node : Status().nodes) states.push_back(node.state);
    return states;
  }

  TestRun run;
};

TEST_F(RunStatusTest, BeforeAnybodyHasJoined) {
  const RunStatus status = Status();
  EXPECT_EQ(status.run_id, "run");
  EXPECT_EQ(status.reason, "no node has joined yet");
  EXPECT_EQ(status.remaining, milliseconds(0));
  EXPECT_TRUE(status.nodes.empty());
}

TEST_F(RunStatusTest, AFormingRoundSaysWhatItWaitsForAndHowLong) {
  Join("a");
  run.now += seconds(2);
  const RunStatus status = Status();
  EXPECT_EQ(status.phase, RunPhase::kForming);
  EXPECT_EQ(status.reason, "waiting for 1 of 2 nodes");
  EXPECT_EQ(status.remaining, seconds(58));
  EXPECT_EQ(status.world_size, 0);
  ASSERT_EQ(status.nodes.size(), 1u);
  EXPECT_EQ(status.nodes[0], (NodeStatus{.node_id = NodeId{"id-a"},
                                         .host = "a",
                                         .address = "addr-a",
                                         .state = NodeState::kWaiting,
                                         .silent = seconds(2)}));
}

TEST_F(RunStatusTest, ASealedRoundHasRanksAndSparesComeLast) {
  const LinkId a = Join("z", 2);
  Join("y", 3);
  Join("a");
  const RunStatus status = Status();
  EXPECT_EQ(status.phase, RunPhase::kSealed);
  EXPECT_EQ(status.reason, "");
  EXPECT_EQ(status.world_size, 5);
  EXPECT_EQ(status.node_count, 3);
  EXPECT_EQ(States(), (std::vector{NodeState::kRunning, NodeState::kRunning, NodeState::kSpare}));
  EXPECT_EQ(status.nodes[1].host, "y");
  EXPECT_EQ(status.nodes[1].rank_first, 2);
  EXPECT_EQ(status.nodes[1].ranks, 3);
  EXPECT_EQ(status.nodes[2].ranks, 0);
  run.Reports(a, NodeSucceeded{kFirst});
  EXPECT_EQ(States()[0], NodeState::kSucceeded);
}

TEST_F(RunStatusTest, OneThatIsAwayIsSilentSinceItsConnectionEnded) {
  Join("a");
  const LinkId b = Join("b");
  run.now += seconds(5);
  run.Goes(b);
  run.now += seconds(3);
  const NodeStatus node = Status().nodes[1];
  EXPECT_EQ(node.state, NodeState::kAway);
  EXPECT_EQ(node.silent, seconds(3));
  EXPECT_EQ(node.ranks, 1) << "its workers may go on";
}

TEST_F(RunStatusTest, TheLastFailureIsKeptWithoutOutputWhileTheNextRoundRuns) {
  const LinkId a = Join("a");
  const LinkId b = Join("b");
  Failure failure = ExitedWith(7);
  failure.last_lines = {"a line of the worker's"};
  run.Reports(b, WorkerFailed{kFirst, failure});
  EXPECT_THAT(Status().reason, HasSubstr("to stop the workers of round 1"));
  EXPECT_EQ(Status().remaining, seconds(60));
  EXPECT_EQ(States(), (std::vector{NodeState::kStopping, NodeState::kStopping}));
  run.Reports(a, NodeStopped{kFirst, 1});
  EXPECT_EQ(States()[0], NodeState::kStopped);
  run.Reports(b, NodeStopped{kFirst, 1});
  const RunStatus status = Status();
  EXPECT_EQ(status.phase, RunPhase::kSealed);
  EXPECT_EQ(status.round, RoundId{2});
  EXPECT_EQ(status.restarts_used, 1);
  EXPECT_EQ(status.restarts_max, 1);
  ASSERT_TRUE(status.last_failure);
  EXPECT_EQ(status.last_failure->exit_code, 7);
  EXPECT_TRUE(status.last_failure->last_lines.empty());
}

TEST_F(RunStatusTest, AClosedRunHasItsVerdict) {
  const LinkId a = Join("a");
  const LinkId b = Join("b");
  for (const LinkId link : {a, b}) run.Reports(link, NodeSucceeded{kFirst});
  run.Reports(a, Leave{});  // it has the verdict
  EXPECT_EQ(Status().phase, RunPhase::kClosed);
  EXPECT_TRUE(Status().verdict->success);
  EXPECT_FALSE(Status().last_failure);
  EXPECT_EQ(States(), (std::vector{NodeState::kSucceeded}));
}

TEST_F(RunStatusTest, OfManyNodesTheFirstAreShownAndAllAreCounted) {
  Join("a");
  Join("b");
  Join("c");
  const RunStatus status = Status(1);
  EXPECT_EQ(status.node_count, 3);
  ASSERT_EQ(status.nodes.size(), 1u);
  EXPECT_EQ(status.nodes[0].host, "a");
}

TEST(Summarize, DamageIsTheSumWhereAllAreChecked) {
  const Progress none{.step = 3, .damages = 0};
  const Progress one{.step = 3, .damages = 1, .damaged_rank = 2};
  const Progress two{.step = 3, .damages = 2, .damaged_rank = 5};
  const Progress together = Summarize({&one, &none, &two});
  EXPECT_EQ(together.damages, 3);
  EXPECT_EQ(together.damaged_rank, 5);
  const Progress unchecked{.step = 3};
  EXPECT_EQ(Summarize({&one, &unchecked}).damages, -1);
  EXPECT_EQ(Summarize({&one, &unchecked}).damaged_rank, -1);
}

TEST(Summarize, AccuracyIsThatOfAnyRankThatReportsOne) {
  const Progress behind{.step = 3};
  const Progress one{.step = 4, .accuracy = 0.5};
  EXPECT_EQ(Summarize({&behind, &one}).accuracy, 0.5);
  EXPECT_EQ(Summarize({&behind}).accuracy, std::nullopt);
}

TEST_F(RunStatusTest, ProgressIsOfThisRoundAndTheRunIsAsFarAsItsSlowestNode) {
  Join("a", 2);
  Join("b", 2);
  run.now += seconds(5);
  const ReportedProgresses told = {
      {NodeId{"id-a"}, {kFirst, {18, 1, 200, "images", "all_reduce"}, run.now - seconds(2)}},
      {NodeId{"id-b"}, {kFirst, {17, 1, 100, "images", "data"}, run.now - seconds(4)}}};
  const RunStatus status = StatusOf(run.state, run.now, kAll, told);
  EXPECT_EQ(status.progress, (Progress{17, 1, 300, "images", "data"}));
  EXPECT_EQ(status.progress_age, seconds(2));
  EXPECT_EQ(status.nodes[1].progress->step, 17);
  EXPECT_EQ(status.nodes[1].progress_age, seconds(4));
  ReportedProgresses old = told;
  for (auto& entry : old) entry.second.round = RoundId{7};
  EXPECT_FALSE(StatusOf(run.state, run.now, kAll, old).progress.has_value());
  EXPECT_FALSE(Status().nodes[0].progress.has_value());
}

TEST_F(RunStatusTest, ASingleRankIsOnlyForThoseWhoAsk) {
  Join("a", 2);
  const LinkId b = Join("b", 2);
  ReportedProgresses told;
  Heartbeat heartbeat{.progress_round = kFirst,
                      .progress = {.step = 3},
                      .ranks = {{.step = 3, .loss = 1}, {.step = 4, .loss = 2}}};
  TakeProgress(run.state, b, heartbeat, run.now, told);
  EXPECT_EQ(StatusOf(run.state, run.now, kAll, told).loss, 1.5);
  EXPECT_TRUE(StatusOf(run.state, run.now, kAll, told).nodes[1].rank_reports.empty());
  const RunStatus asked = StatusOf(run.state, run.now, kAll, told, 2);
  EXPECT_TRUE(asked.nodes[0].rank_reports.empty());
  EXPECT_EQ(asked.nodes[1].rank_reports, heartbeat.ranks);
  EXPECT_TRUE(StatusOf(run.state, run.now, kAll, told, 1).nodes[1].rank_reports.empty());
  // A new memory alone is no progress; more ranks than the node has are not kept.
  heartbeat.ranks.resize(3);
  heartbeat.ranks[0].memory = 7;
  TakeProgress(run.state, b, heartbeat, run.now + seconds(9), told);
  const RunStatus later = StatusOf(run.state, run.now + seconds(9), kAll, told, 9);
  EXPECT_EQ(later.nodes[1].progress_age, seconds(9));
  ASSERT_EQ(later.nodes[1].rank_reports.size(), 2u);
  EXPECT_EQ(later.nodes[1].rank_reports[0].memory, 7);
}

}  // namespace
}  // namespace ddprun
