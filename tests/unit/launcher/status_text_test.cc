// SPDX-License-Identifier: Apache-2.0
// The whole text, as a person sees it, and the JSON, as a program does.
#include "launcher/ctl/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

NodeStatus Node(int rank, const std::string& host, NodeState state, int silent_ms) {
  return {.node_id = NodeId{"id-" + host},
          .host = host,
          .address = "10.0.0." + std::to_string(rank + 1),
          .node_rank = rank,
          .state = state,
          .rank_first = 4 * rank,
          .ranks = 4,
          .silent = milliseconds(silent_ms)};
}

RunStatus RunningRun() {
  Failure lost;
  lost.kind = FailureKind::kNodeLost;
  lost.host = "b";
  lost.node_rank = 1;
  lost.message = "its agent was killed by signal 9 (SIGKILL)";
  NodeStatus spare;
  spare.host = "spare";
  spare.address = "10.0.0.9";
  spare.state = NodeState::kSpare;
  return {.run_id = "job7",
          .phase = RunPhase::kSealed,
          .round = RoundId{2},
          .nodes_min = 2,
          .nodes_max = 2,
          .world_size = 8,
          .restarts_used = 1,
          .restarts_max = 3,
          .last_failure = lost,
          .node_count = 3,
          .nodes = {Node(0, "a", NodeState::kRunning, 240),
                    Node(1, "node-b", NodeState::kAway, 12'000), spare}};
}

RunStatus FormingRun() {
  return {.run_id = "next",
          .phase = RunPhase::kForming,
          .round = RoundId{1},
          .reason = "waiting for 1 of 2 nodes: node rank 1 has not joined",
          .remaining = milliseconds(28'000),
          .nodes_min = 1,
          .nodes_max = 2};
}

TEST(StatusTextTest, RunsOneAfterAnother) {
  EXPECT_EQ(
      StatusText({.software_version = "1", .runs = {RunningRun(), FormingRun()}}, "h:1"),
      "run job7: running, round 2, world size 8, 3 nodes are here of 2, 1 of 3 restarts used\n"
      "  last failure: node b (node rank 1) was lost: its agent was killed by signal 9 "
      "(SIGKILL)\n"
      "  NODE  HOST    ADDRESS   STATE    RANKS  HEARD\n"
      "  0     a       10.0.0.1  running  0-3    0.2 s ago\n"
      "  1     node-b  10.0.0.2  away     4-7    12.0 s ago\n"
      "  -     spare   10.0.0.9  spare    -      0.0 s ago\n"
      "\n"
      "run next: forming, round 1, 0 nodes are here of 1:2, 0 of 0 restarts used\n"
      "  waiting for 1 of 2 nodes: node rank 1 has not joined; 28.0 s left\n");
}

TEST(StatusTextTest, TheOrderOfRanksAndThePlacesOfNodes) {
  RunStatus run = RunningRun();
  run.rank_order = RankOrder::kTopology;
  run.nodes[0].topology = "s0.s1.a";
  run.last_failure.reset();
  EXPECT_EQ(
      StatusText({.software_version = "1", .runs = {run}}, "h:1"),
      "run job7: running, round 2, world size 8, 3 nodes are here of 2, 1 of 3 restarts used, "
      "ranks by topology\n"
      "  NODE  HOST    ADDRESS   STATE    RANKS  HEARD       TOPOLOGY\n"
      "  0     a       10.0.0.1  running  0-3    0.2 s ago   s0.s1.a\n"
      "  1     node-b  10.0.0.2  away     4-7    12.0 s ago  -\n"
      "  -     spare   10.0.0.9  spare    -      0.0 s ago   -\n");
}

TEST(StatusTextTest, AnEndedRunAndNone) {
  RunStatus over = FormingRun();
  over.phase = RunPhase::kClosed;
  over.reason = "";
  over.verdict = Verdict{.success = false, .exit_code = 9};
  over.node_count = 5;
  EXPECT_EQ(StatusText({.software_version = "1", .runs = {over}}, "h:1"),
            "run next: over, round 1, 0 of 0 restarts used\n"
            "  ended with exit code 9\n"
            "  and 5 more nodes\n");
  EXPECT_EQ(StatusText({}, "h:1"), "the rendezvous service at h:1 has no run\n");
}

TEST(StatusJsonTest, SaysTheSame) {
  const std::string text =
      StatusJson({.software_version = "1", .runs = {RunningRun(), FormingRun()}}, "h:1");
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["service"], "h:1");
  EXPECT_EQ(json["version"], "1");
  const auto& run = json["runs"][0];
  EXPECT_EQ(run["run_id"], "job7");
  EXPECT_EQ(run["phase"], "running");
  EXPECT_EQ(run["world_size"], 8);
  EXPECT_EQ(run["rank_order"], "join");
  EXPECT_TRUE(run["nodes"][0]["topology"].is_null());
  EXPECT_EQ(run["last_failure"]["node_rank"], 1);
  EXPECT_EQ(run["last_failure"]["exit_code"], 1);
  EXPECT_TRUE(run["last_failure"]["rank"].is_null());
  EXPECT_TRUE(run["verdict"].is_null());
  EXPECT_EQ(run["nodes"][1]["state"], "away");
  EXPECT_EQ(run["nodes"][1]["ranks"], nlohmann::json({4, 5, 6, 7}));
  EXPECT_EQ(run["nodes"][1]["silent_ms"], 12'000);
  EXPECT_TRUE(run["nodes"][2]["node_rank"].is_null());
  EXPECT_EQ(json["runs"][1]["remaining_ms"], 28'000);
  EXPECT_EQ(nlohmann::json::parse(StatusJson({}, "h:1"))["runs"].size(), 0u);
}

TEST(StatusJsonTest, NamesThatAreNoTextDoNotEndIt) {
  RunStatus run = FormingRun();
  run.run_id = "bad \xff";
  EXPECT_NO_THROW(nlohmann::json::parse(StatusJson({.software_version = "1", .runs = {run}}, "")));
}

TEST(StatusJsonTest, SingleRanksAreOfTheirNode) {
  RunStatus run = RunningRun();
  run.loss = 0.5;
  run.nodes[1].rank_reports = {{.step = 7, .loss = 0.25, .section = "data", .memory = 4096},
                               {.loss = std::numeric_limits<double>::infinity(), .hung = true}};
  const nlohmann::json json = nlohmann::json::parse(StatusJson({.runs = {run}}, "h:1"))["runs"][0];
  EXPECT_EQ(json["loss"], 0.5);
  EXPECT_TRUE(json["nodes"][0]["workers"].empty());
  const nlohmann::json& workers = json["nodes"][1]["workers"];
  EXPECT_EQ(workers[0]["rank"], 4);
  EXPECT_EQ(workers[0]["loss"], 0.25);
  EXPECT_EQ(workers[0]["memory"], 4096);
  EXPECT_TRUE(workers[0]["gpu_memory"].is_null());
  EXPECT_EQ(workers[1]["rank"], 5);
  EXPECT_TRUE(workers[1]["loss"].is_null());
  EXPECT_EQ(workers[1]["hung"], true);
}

TEST(StatusLinesTest, DoNotChangeAsTimePasses) {
  RunStatus later = RunningRun();
  later.nodes[0].silent += milliseconds(3000);
  const std::vector<std::string> lines = StatusLines({.runs = {later, FormingRun()}});
  EXPECT_EQ(lines, StatusLines({.runs = {RunningRun(), FormingRun()}}));
  EXPECT_THAT(lines[0], ::testing::HasSubstr("; 1 away, 1 running, 1 spare"));
}

TEST(StatusTextTest, RanksThatWaitForOthersAndDoNotMove) {
  RunStatus run = RunningRun();
  EXPECT_TRUE(nlohmann::json::parse(StatusJson({.runs = {run}}, "h:1"))["runs"][0]["collectives"]
                  .is_null());
  run.still = {{.ranks = {{0, 0}}, .place = {Collective{"0", 11, "all_reduce"}, {}}},
               {.ranks = {{1, 1}}, .place = {std::nullopt, {{"0", 10, "all_reduce"}}}}};
  const std::string where =
      "rank 0 waits in all_reduce 11; rank 1 has not begun it: its last was all_reduce 10";
  EXPECT_THAT(StatusText({.runs = {run}}, "h:1"),
              ::testing::HasSubstr("\n  collectives: " + where + "\n"));
  EXPECT_EQ(nlohmann::json::parse(StatusJson({.runs = {run}}, "h:1"))["runs"][0]["collectives"],
            where);
}

}  // namespace
}  // namespace ddprun
