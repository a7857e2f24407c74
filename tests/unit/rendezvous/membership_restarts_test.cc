// SPDX-License-Identifier: Apache-2.0
// What follows a failure in a run: which restarts count, which failures are worth one, when it
// comes, and who is left out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/observe/run_status.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

Failure Exit(int code) {
  Failure failure = ExitedWith(code);
  failure.host.clear();  // the node's
  failure.node_rank = -1;
  return failure;
}

// Nodes a, b, ... of one run, each with its link, in their order.
struct Nodes {
  TestRun run;
  JoinOptions options;
  std::map<std::string, LinkId> links;

  explicit Nodes(JoinOptions of, std::initializer_list<const char*> hosts) : options(of) {
    for (const char* host : hosts) Join(host);
  }
  LinkId Join(const std::string& host) { return links[host] = run.Joins(host, options); }
  // A worker of the node fails, and all nodes stop theirs: the next round forms, or the run ends.
  void Fails(const std::string& host, int code = 1) {
    run.Reports(links.at(host), WorkerFailed{run.state.round, Exit(code)});
    Stop();
  }
  void Stop() {
    const RoundId round = run.state.round;
    for (const auto& [host, link] : links) {
      if (!run.state.links.contains(link)) continue;
      run.Reports(link, NodeStopped{round, 1});
      if (run.state.phase != RunPhase::kBroken || run.state.round != round) return;
    }
  }
  void Passes(Duration time) { run.now += time; }
  Start StartOf(const std::string& host) { return *run.Sent<Start>(links.at(host)); }
  Verdict VerdictOf(const std::string& host) { return run.Sent<Finish>(links.at(host))->verdict; }
};

// ---- The budget

TEST(RestartWindowTest, TheRunGoesOnAsLongAsFewFailuresAreClose) {
  Nodes nodes({.restarts = 2, .policy = {.window = seconds(60)}}, {"a", "b"});
  for (int i = 1; i <= 5; ++i) {
    nodes.Passes(seconds(40));
    nodes.Fails("b");
    ASSERT_EQ(nodes.run.state.phase, RunPhase::kSealed) << i;
    for (const char* host : {"a", "b"}) {
      EXPECT_EQ(nodes.StartOf(host).restart_count, i);
      EXPECT_EQ(nodes.StartOf(host).restarts_forgiven, std::max(0, i - 2));
      EXPECT_EQ(nodes.StartOf(host).restarts_max, 2);
    }
  }
  nodes.Passes(seconds(1));
  nodes.Fails("b", 7);
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kClosed);
  EXPECT_EQ(nodes.VerdictOf("a"), nodes.VerdictOf("b"));
  EXPECT_EQ(nodes.VerdictOf("a").exit_code, 7);
  EXPECT_EQ(nodes.VerdictOf("a").restart_count, 5);
  EXPECT_EQ(nodes.VerdictOf("a").restarts_forgiven, 3);
  EXPECT_EQ(nodes.VerdictOf("a").not_restarted,
            "--max-restarts 2 are used up within 60 s (--restart-window)");
}

TEST(RestartWindowTest, TheTimeToStopIsNotTimePassed) {
  Nodes nodes({.restarts = 1, .policy = {.window = seconds(60)}}, {"a", "b"});
  nodes.Fails("b");
  nodes.Passes(seconds(59));
  nodes.run.Reports(nodes.links.at("b"), WorkerFailed{nodes.run.state.round, Exit(1)});
  nodes.Passes(seconds(10));
  nodes.Stop();
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kClosed) << "judged as of the failure";
  EXPECT_EQ(nodes.VerdictOf("a").restarts_forgiven, 0);
}

TEST(RestartResetTest, ARoundThatRanLongGivesTheWholeBudgetBack) {
  Nodes nodes({.restarts = 1, .policy = {.reset = seconds(100)}}, {"a", "b"});
  for (int i = 1; i <= 3; ++i) {
    nodes.Passes(seconds(100));
    nodes.Fails("a");
    ASSERT_EQ(nodes.run.state.phase, RunPhase::kSealed);
    EXPECT_EQ(nodes.StartOf("b").restart_count, i);
    EXPECT_EQ(nodes.StartOf("b").restarts_forgiven, i - 1);
  }
  nodes.Passes(seconds(99));
  nodes.Fails("a");
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kClosed);
}

TEST(NoProgressTest, EndsTheRunBeforeTheBudgetDoes) {
  Nodes nodes({.restarts = 100, .policy = {.reset = seconds(10), .no_progress_max = 2}},
              {"a", "b"});
  nodes.Passes(seconds(10));
  nodes.Fails("a");
  nodes.Fails("a");
  ASSERT_EQ(nodes.run.state.phase, RunPhase::kSealed);
  nodes.Fails("a");
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kClosed);
  EXPECT_THAT(nodes.VerdictOf("a").not_restarted, HasSubstr("2 rounds in a row"));
}

TEST(NoProgressTest, AStepThatNoRoundHadReachedIsProgress) {
  Nodes nodes({.restarts = 2, .policy = {.no_progress_max = 2}}, {"a", "b"});
  const auto at = [&nodes](const char* host, std::int64_t step) {
    Heartbeat heartbeat;
    heartbeat.progress_round = nodes.run.state.round;
    heartbeat.progress.step = step;
    nodes.run.Reports(nodes.links.at(host), heartbeat);
  };
  for (int step = 10; step < 60; step += 10) {
    at("b", step);
    nodes.Fails("a");
    ASSERT_EQ(nodes.run.state.phase, RunPhase::kSealed) << step;
  }
  at("a", 50);
  nodes.Fails("a");
  ASSERT_EQ(nodes.run.state.phase, RunPhase::kSealed);
  at("a", 49);
  nodes.Fails("a");
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kClosed);
}

TEST(NoProgressTest, StepsOfAnotherRoundOrOfASpareMeanNothing) {
  Nodes nodes({.restarts = 5, .policy = {.no_progress_max = 1}}, {"a", "b", "c"});
  Heartbeat heartbeat;
  heartbeat.progress.step = 7;
  heartbeat.progress_round = RoundId{2};
  nodes.run.Reports(nodes.links.at("a"), heartbeat);
  heartbeat.progress_round = RoundId{1};
  nodes.run.Reports(nodes.links.at("c"), heartbeat);
  EXPECT_EQ(nodes.run.state.restarts.step, RestartHistory::kNoStep);
  nodes.run.Reports(nodes.links.at("b"), heartbeat);
  EXPECT_EQ(nodes.run.state.restarts.step, 7);
}

// ---- Which failures

TEST(ExitCodesTest, AFailureThatIsNotWorthItEndsTheRunForAll) {
  Nodes nodes({.restarts = 3, .policy = {.never_codes = {{77, 77}}}}, {"a", "b"});
  nodes.Fails("b", 1);
  ASSERT_EQ(nodes.run.state.phase, RunPhase::kSealed);
  nodes.Fails("b", 77);
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kClosed);
  EXPECT_EQ(nodes.VerdictOf("a").exit_code, 77);
  EXPECT_EQ(nodes.VerdictOf("a").restart_count, 1);
  EXPECT_EQ(nodes.VerdictOf("a").not_restarted,
            "exit code 77 is not worth another try (--no-restart-exit-codes 77)");
}

TEST(ExitCodesTest, WhileItStopsTheRunIsOverForNewcomers) {
  Nodes nodes({.restarts = 3, .policy = {.never_codes = {{77, 77}}}}, {"a", "b"});
  nodes.run.Reports(nodes.links.at("b"), WorkerFailed{nodes.run.state.round, Exit(77)});
  EXPECT_TRUE(IsEnding(nodes.run.state));
  EXPECT_THAT(nodes.run.RefusalOf(nodes.Join("c")), HasSubstr("is too late for run 'run'"));
}

TEST(ExitCodesTest, ALossThatWasTheRealCauseIsWorthARestart) {
  // b had fallen silent, and a's worker failed for that.
  Nodes nodes({.restarts = 1, .lease = seconds(10), .policy = {.never_codes = {{1, 1}}}},
              {"a", "b", "c"});
  nodes.run.Goes(nodes.links.at("b"));
  nodes.run.PassesUntil(nodes.run.now + seconds(5));
  nodes.run.Reports(nodes.links.at("a"), WorkerFailed{nodes.run.state.round, Exit(1)});
  EXPECT_TRUE(IsEnding(nodes.run.state));
  nodes.run.Reports(nodes.links.at("a"), NodeStopped{nodes.run.state.round, 1});
  nodes.run.PassesUntil(nodes.run.now + seconds(2));
  nodes.run.Reports(nodes.links.at("a"), Heartbeat{});
  nodes.run.Reports(nodes.links.at("c"), Heartbeat{});
  nodes.run.PassesUntil(nodes.run.now + seconds(3));
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kSealed);
  EXPECT_EQ(nodes.StartOf("c").restart_count, 1);
}

// ---- When

TEST(RestartDelayTest, TheNextRoundWaitsAndSaysSo) {
  Nodes nodes({.restarts = 3,
               .policy = {.delay = seconds(4), .delay_max = seconds(6)},
               .hosts_service = false},
              {"a", "b"});
  nodes.Fails("b");
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kForming);
  EXPECT_EQ(nodes.run.Sent<Waiting>(nodes.links.at("a"))->remaining, seconds(4));
  EXPECT_THAT(nodes.run.Sent<Waiting>(nodes.links.at("a"))->reason,
              HasSubstr("restart 1 begins after its --restart-delay (round 1 ended: "));
  EXPECT_EQ(StatusOf(nodes.run.state, nodes.run.now, 9).remaining, seconds(4));
  const TimePoint due = nodes.run.now + seconds(4);
  EXPECT_EQ(NextDeadline(nodes.run.state), due);
  nodes.run.TicksAt(due - milliseconds(1));
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kForming);
  nodes.run.TicksAt(due);
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kSealed);
  nodes.Fails("b");
  EXPECT_EQ(NextDeadline(nodes.run.state), nodes.run.now + seconds(6)) << "8, but for the most";
}

TEST(RestartDelayTest, IsNotTakenFromTheTimeToJoin) {
  Nodes nodes({.restarts = 1, .policy = {.delay = seconds(50)}}, {"a", "b"});
  nodes.run.Goes(nodes.links.at("b"));
  nodes.Stop();
  ASSERT_EQ(nodes.run.state.phase, RunPhase::kForming);
  const TimePoint broke = nodes.run.now;
  nodes.run.TicksAt(broke + seconds(50));
  nodes.run.TicksAt(broke + seconds(109));
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kForming);
  nodes.run.TicksAt(broke + seconds(110));
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kClosed);
}

// ---- Without whom

JoinOptions Excluding(int failures, JoinOptions options = {}) {
  options.restarts = 100;
  options.policy.node_failures_max = failures;
  return options;
}

TEST(LeftOutTest, ASpareTakesThePlaceOfTheNodeThatFailsAgainAndAgain) {
  Nodes nodes(Excluding(2), {"a", "b", "spare"});
  nodes.Fails("b", 9);
  ASSERT_EQ(nodes.StartOf("b").node_rank, 1);
  nodes.Fails("b", 9);
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kSealed);
  EXPECT_EQ(nodes.StartOf("spare").node_rank, 1);
  EXPECT_EQ(nodes.StartOf("a").left_out,
            "node b is left out after 2 failures (--node-failures-max 2)");
  const auto refused = nodes.run.Sent<Refused>(nodes.links.at("b"));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->exit_code, 9) << "its worker's";
  EXPECT_EQ(refused->status.message(),
            "node b is left out after 2 failures (--node-failures-max 2) of run 'run', the last "
            "with exit code 9; check that machine, and run ddprun on another one");
  EXPECT_TRUE(nodes.run.Ended(nodes.links.at("b")));
  const RunStatus status = StatusOf(nodes.run.state, nodes.run.now, 9);
  EXPECT_EQ(status.left_out, (std::vector<LeftOutStatus>{{.host = "b", .failures = 2}}));
}

TEST(LeftOutTest, AnotherAgentOnThatHostIsRefused) {
  Nodes nodes(Excluding(1), {"a", "b", "spare"});
  nodes.Fails("b", 9);
  nodes.Passes(std::chrono::hours(100));
  Join again = MakeJoin("b", nodes.options);
  again.node_id = NodeId{"another"};
  nodes.run.Do(NodeJoined{LinkId{50}, again});
  EXPECT_THAT(nodes.run.RefusalOf(LinkId{50}), HasSubstr("node b is left out"));
  EXPECT_EQ(nodes.run.Sent<Refused>(LinkId{50})->exit_code, 0);
  // The one that was left out and did not hear of it.
  again = MakeJoin("b", nodes.options);
  again.resume = true;
  nodes.run.Do(NodeJoined{LinkId{51}, again});
  EXPECT_THAT(nodes.run.RefusalOf(LinkId{51}), HasSubstr("node b is left out"));
  EXPECT_EQ(nodes.run.Sent<Refused>(LinkId{51})->exit_code, 9);
}

TEST(LeftOutTest, MayComeBackAfterTheCoolDownWithNothingHeldAgainstIt) {
  JoinOptions options = Excluding(2);
  options.policy.node_cooldown = seconds(100);
  Nodes nodes(options, {"a", "b", "spare"});
  nodes.Fails("b");
  nodes.Fails("b");
  EXPECT_EQ(nodes.run.Sent<Refused>(nodes.links.at("b"))->status.message(),
            "node b is left out after 2 failures (--node-failures-max 2) of run 'run', the last "
            "with exit code 1; check that machine, or start ddprun there again in 100 s "
            "(--node-cooldown)");
  nodes.Passes(seconds(99));
  EXPECT_THAT(nodes.run.RefusalOf(nodes.Join("b")), HasSubstr("again in 1 s"));
  EXPECT_EQ(StatusOf(nodes.run.state, nodes.run.now, 9).left_out.at(0).remaining, seconds(1));
  nodes.Passes(seconds(1));
  nodes.Join("b");
  EXPECT_EQ(nodes.run.state.members.size(), 3u);
  EXPECT_TRUE(StatusOf(nodes.run.state, nodes.run.now, 9).left_out.empty());
}

TEST(LeftOutTest, AnElasticRunGoesOnWithFewerNodes) {
  Nodes nodes(Excluding(1, {.nodes = 3, .nodes_min = 2, .last_call = milliseconds(0)}), {"a", "b"});
  ASSERT_EQ(nodes.run.state.phase, RunPhase::kSealed);
  nodes.Join("c");
  nodes.Fails("b");
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kSealed);
  EXPECT_EQ(nodes.StartOf("a").node_count, 2);
}

TEST(LeftOutTest, TooFewNodesEndTheRun) {
  Nodes nodes(Excluding(2), {"a", "b"});
  nodes.Fails("a");
  nodes.Fails("b");
  ASSERT_EQ(nodes.run.state.phase, RunPhase::kSealed) << "each of them failed once";
  nodes.Fails("b", 9);
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kClosed);
  EXPECT_EQ(nodes.VerdictOf("a").exit_code, 9);
  EXPECT_EQ(nodes.VerdictOf("b"), nodes.VerdictOf("a"));
  EXPECT_EQ(nodes.VerdictOf("a").not_restarted,
            "node b is left out after 2 failures (--node-failures-max 2), and 1 node is left of "
            "the 2 that the run needs");
}

TEST(LeftOutTest, TheNodeThatHostsTheServiceCannotBe) {
  Nodes nodes(Excluding(1), {});
  nodes.options.hosts_service = true;
  nodes.Join("a");
  nodes.options.hosts_service = false;
  nodes.Join("b");
  nodes.Join("spare");
  nodes.Fails("a");
  EXPECT_EQ(nodes.run.state.phase, RunPhase::kClosed);
  EXPECT_THAT(nodes.VerdictOf("b").not_restarted, HasSubstr("rendezvous service that it hosts"));
}

TEST(LeftOutTest, ALostAgentIsItsHostsFailureAndOneThatLeftIsNot) {
  Nodes nodes(Excluding(1), {"a", "b", "c", "d"});
  Leave leave;
  leave.reason.kind = FailureKind::kNodeInterrupted;
  leave.reason.signal = 15;
  nodes.run.Reports(nodes.links.at("b"), leave);
  nodes.Stop();
  ASSERT_EQ(nodes.run.state.phase, RunPhase::kSealed);
  EXPECT_TRUE(StatusOf(nodes.run.state, nodes.run.now, 9).left_out.empty());
  nodes.run.Goes(nodes.links.at("c"));
  nodes.Stop();
  ASSERT_EQ(nodes.run.state.phase, RunPhase::kSealed);
  EXPECT_EQ(StatusOf(nodes.run.state, nodes.run.now, 9).left_out.at(0).host, "c");
  EXPECT_THAT(nodes.run.RefusalOf(nodes.Join("c")), HasSubstr("node c is left out"));
}

// ---- All agree

TEST(RestartRulesTest, NodesThatDisagreeAreBothNamed) {
  Nodes nodes({.nodes = 3, .restarts = 3, .policy = {.window = seconds(60)}}, {"a"});
  nodes.options.policy.window = seconds(90);
  EXPECT_EQ(nodes.run.RefusalOf(nodes.Join("b")),
            "node b was started with --restart-window 90, the run has --restart-window 60 (set by "
            "node a); start all nodes with the same --restart-window");
  nodes.options.policy.window = seconds(60);
  nodes.options.policy.node_failures_max = 2;
  EXPECT_THAT(nodes.run.RefusalOf(nodes.Join("c")),
              HasSubstr("--node-failures-max 2, the run has no --node-failures-max"));
}

TEST(RestartRulesTest, WhatIsOutOfRangeIsRefused) {
  TestRun run;
  EXPECT_EQ(run.RefusalOf(run.Joins("a", {.policy = {.never_codes = {{0, 300}}}})),
            "node a joined with exit codes that are none, or too many");
}

}  // namespace
}  // namespace ddprun
