// SPDX-License-Identifier: Apache-2.0
// What becomes of a run when somebody asks for its end, or for a node to leave.
#include "rendezvous/membership/operator_rules.h"

#include <csignal>

#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr RoundId kFirst{1};
constexpr LinkId kA{1};
constexpr LinkId kB{2};

// Nodes a and b in a sealed round.
TestRun Running(JoinOptions options) {
  TestRun run;
  run.Joins("a", options);
  run.Joins("b", options);
  if (run.state.phase == RunPhase::kForming) run.TicksAt(run.now + options.last_call);
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  return run;
}

std::string Why(const TestRun& run, DrainRequest request) {
  request.by = "desk";
  return std::string(PlanDrain(run.state, request).status().message());
}

std::string What(const TestRun& run, DrainRequest request) {
  request.by = "desk";
  const auto plan = PlanDrain(run.state, request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? plan->sentence : "";
}

TEST(StopTest, EndsARunThatRunsWithAVerdictForAll) {
  TestRun run = Running({.restarts = 3});
  run.Do(RunStopped{"desk", false});
  EXPECT_EQ(run.Sent<Stop>(kA)->cause.signal, SIGTERM);
  run.Reports(kA, NodeStopped{kFirst, 1});
  run.Reports(kB, NodeStopped{kFirst, 1});
  const auto finish = run.Sent<Finish>(kA);
  ASSERT_TRUE(finish) << "no restart, although some are left";
  EXPECT_EQ(finish->verdict.exit_code, 143);
  EXPECT_EQ(ToSentence(*finish->verdict.cause), "stopped by ddpctl from desk");
  EXPECT_EQ(run.Sent<Finish>(kB), finish);
}

TEST(StopTest, NowAlsoAfterOneThatWasPolite) {
  TestRun run = Running({});
  run.Do(RunStopped{"desk", false});
  run.Reports(kA, NodeStopped{kFirst, 1});
  run.Do(RunStopped{"desk", true});
  EXPECT_FALSE(run.Sent<Stop>(kA)) << "its workers are gone";
  EXPECT_EQ(run.Sent<Stop>(kB)->cause.signal, SIGKILL);
  run.Reports(kB, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Finish>(kB)->verdict.exit_code, 137);
}

TEST(StopTest, TakesTheRestartOfARoundThatBroke) {
  TestRun run = Running({.restarts = 1});
  run.Reports(kA, WorkerFailed{kFirst, ExitedWith(3)});
  run.Do(RunStopped{"desk", false});
  run.Reports(kA, NodeStopped{kFirst, 1});
  run.Reports(kB, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.state.verdict->cause->kind, FailureKind::kRunStopped);
}

TEST(StopTest, IsNotTheCauseOfWhatEndsAnyway) {
  TestRun run = Running({.restarts = 0});
  run.Reports(kA, WorkerFailed{kFirst, ExitedWith(3)});
  run.Do(RunStopped{"desk", true});
  run.Reports(kA, NodeStopped{kFirst, 1});
  run.Reports(kB, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.state.verdict->exit_code, 3);
}

TEST(StopTest, SaysWhatHappens) {
  TestRun run = Running({});
  EXPECT_EQ(
      *PlanStop(run.state, {.by = "desk"}),
      "run 'run' ends on 2 nodes: the workers get SIGTERM; ddprun's exit code is 143 on each");
  EXPECT_THAT(*PlanStop(run.state, {.by = "desk", .now = true}), HasSubstr("SIGKILL"));
  for (const LinkId link : {kA, kB}) run.Reports(link, NodeSucceeded{kFirst});
  EXPECT_THAT(std::string(PlanStop(run.state, {.by = "desk"}).status().message()),
              HasSubstr("is over already"));
}

TEST(DrainTest, ASpareTakesThePlaceAndNoRestartIsUsed) {
  TestRun run = Running({.restarts = 0});
  const LinkId c = run.Joins("c", {.restarts = 0});
  EXPECT_EQ(What(run, {.node = "b"}),
            "node b (node rank 1) leaves, its worker is stopped; node c takes its place");
  run.Do(NodeDrained{NodeId{"id-b"}, "desk"});
  EXPECT_TRUE(run.Sent<Stop>(kA) && run.Sent<Stop>(kB));
  EXPECT_THAT(Why(run, {.node = "b"}), HasSubstr("leaves already"));
  run.Reports(kA, NodeStopped{kFirst, 1});
  run.Reports(kB, NodeStopped{kFirst, 1});
  const auto told = run.Sent<Finish>(kB);
  ASSERT_TRUE(told && run.Ended(kB));
  EXPECT_EQ(told->verdict.exit_code, 0);
  EXPECT_EQ(ToSentence(*told->verdict.cause),
            "node b (node rank 1) was drained by ddpctl from desk");
  EXPECT_EQ(run.Sent<Start>(c)->node_rank, 1);
  EXPECT_EQ(run.Sent<Start>(kA)->round, RoundId{2});
  EXPECT_EQ(run.Sent<Start>(kA)->restart_count, 0);
}

TEST(DrainTest, AnElasticRunGoesOnAtOnce) {
  TestRun run = Running({.nodes = 3, .nodes_min = 1});
  EXPECT_THAT(What(run, {.node = "1"}), HasSubstr("the run goes on with 1 of at most 3 nodes"));
  run.Do(NodeDrained{NodeId{"id-b"}, "desk"});
  run.Reports(kA, NodeStopped{kFirst, 1});
  run.Reports(kB, NodeStopped{kFirst, 1});
  EXPECT_EQ(run.Sent<Start>(kA)->world_size, 1) << "nobody is waited for";
}

TEST(DrainTest, IsRefusedWhereTheRunCouldNotGoOn) {
  TestRun run = Running({});
  EXPECT_THAT(Why(run, {.node = "b"}),
              HasSubstr("there are 1 node left of the 2 that the run needs, and none stands by"));
  EXPECT_THAT(What(run, {.node = "b", .force = true}), HasSubstr("wait for one for up to 60 s"));
  EXPECT_THAT(Why(run, {.node = "7"}), HasSubstr("has no node '7'"));
  run.state.members.at(NodeId{"id-a"}).join.hosts_service = true;
  EXPECT_THAT(Why(run, {.node = "a", .force = true}), HasSubstr("hosts the run's rendezvous"));
  TestRun alone;
  alone.Joins("a", {.nodes = 1});
  EXPECT_THAT(Why(alone, {.node = "a", .force = true}), HasSubstr("is the run's last node"));
}

TEST(DrainTest, SeveralNodesOfOneHostAreToldApart) {
  TestRun run;
  Join join = MakeJoin("a", {});
  run.Do(NodeJoined{kA, join});
  join.node_id = NodeId{"other"};
  run.Do(NodeJoined{kB, join});
  EXPECT_THAT(Why(run, {.node = "a"}), HasSubstr("has 2 nodes on host a; name one of 0, 1"));
  EXPECT_THAT(What(run, {.node = "other", .force = true}), HasSubstr("node rank 1"));
}

TEST(DrainTest, AtTheNextRoundIsAtTheNextRound) {
  TestRun run = Running({.restarts = 1});
  const LinkId c = run.Joins("c", {.restarts = 1});
  EXPECT_THAT(What(run, {.node = "b", .at_next_round = true}),
              HasSubstr("leaves when round 1 ends; afterwards node c takes its place"));
  run.Do(NodeDrained{NodeId{"id-b"}, "desk", true});
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
  run.Reports(kA, WorkerFailed{kFirst, ExitedWith(3)});
  run.Reports(kA, NodeStopped{kFirst, 1});
  run.Reports(kB, NodeStopped{kFirst, 1});
  EXPECT_TRUE(run.Sent<Finish>(kB));
  EXPECT_EQ(run.Sent<Start>(c)->restart_count, 1) << "a failure ended the round";
}

TEST(DrainTest, ASpareLeavesAlone) {
  TestRun run = Running({});
  const LinkId c = run.Joins("c");
  EXPECT_THAT(What(run, {.node = "c"}), HasSubstr("leaves at once"));
  run.Do(NodeDrained{NodeId{"id-c"}, "desk"});
  EXPECT_TRUE(run.Sent<Finish>(c));
  EXPECT_EQ(run.state.phase, RunPhase::kSealed);
}

}  // namespace
}  // namespace ddprun
