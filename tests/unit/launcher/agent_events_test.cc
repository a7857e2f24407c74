// SPDX-License-Identifier: Apache-2.0
// What an agent's event log says of its own node.
#include "launcher/supervisor/agent_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

namespace ddprun {
namespace {

using Json = nlohmann::json;

Start Round(int number) {
  return {.round = RoundId{static_cast<std::uint64_t>(number)},
          .run_id = "job",
          .node_rank = 1,
          .node_count = 2,
          .rank_first = 4,
          .world_size = 8};
}

Json Line(const std::optional<RunEvent>& event) {
  EXPECT_TRUE(event);
  return event ? Json::parse(ToJsonLine(*event, {}, {})) : Json();
}

TEST(AgentEventsTest, ANotice) {
  SupervisorState state;
  const Json given = Line(EventOf(NoticeGiven{std::chrono::seconds(120), "SIGUSR1"}, state));
  EXPECT_EQ(given["event"], "notice.received");
  EXPECT_EQ(given["seconds"], 120);
  Preemption told{3, std::chrono::seconds(60), "b", 1, "SIGUSR1"};
  const Json notice = Line(EventOf(told, state));
  EXPECT_EQ(notice["event"], "node.notice");
  EXPECT_EQ(notice["notice_host"], "b");
  state.notice_number = 3;
  EXPECT_FALSE(EventOf(told, state)) << "told again";
  told = {4};
  EXPECT_FALSE(EventOf(told, state)) << "it is over";
}

TEST(AgentEventsTest, WhatWorkersLeftBehind) {
  SupervisorState state;
  state.round = Round(3);
  const Json left = Line(EventOf(
      LeftBehind{.signal = SIGTERM, .remaining = {}, .processes = {"a (pid 1)", "b (pid 2)"}},
      state));
  EXPECT_EQ(left["event"], "workers.left_behind");
  EXPECT_EQ(left["round"], 3);
  EXPECT_EQ(left["signal"], "SIGTERM");
  EXPECT_EQ(left["reason"], "a (pid 1), b (pid 2)");
}

TEST(AgentEventsTest, ARoundAndItsWorkers) {
  SupervisorState state;
  EXPECT_EQ(Line(EventOf(Round(1), state))["world_size"], 8);
  EXPECT_EQ(Line(WorkerStarted(Round(1), 2, 4711))["rank"], 6);
  state.round = Round(1);
  state.phase = Phase::kRunning;
  EXPECT_FALSE(EventOf(Round(1), state)) << "told again";
  const Json good = Line(EventOf(WorkerEnded{.local_rank = 2, .outcome = Exited{0}}, state));
  EXPECT_EQ(good["name"], "torchelastic.worker.status.SUCCEEDED");
  EXPECT_EQ(good["rank"], 6);
  const Json killed = Line(EventOf(WorkerEnded{.outcome = Signaled{SIGKILL}, .pid = 7}, state));
  EXPECT_EQ(killed["name"], "torchelastic.worker.status.FAILED");
  EXPECT_EQ(killed["exit_code"], 137);
  EXPECT_EQ(killed["signal"], "SIGKILL");
  EXPECT_EQ(killed["pid"], 7);
  state.phase = Phase::kStopping;
  const Json victim = Line(EventOf(WorkerEnded{.outcome = Signaled{SIGTERM}}, state));
  EXPECT_EQ(victim["name"], "torchelastic.worker.status.TERMINATED");
}

TEST(AgentEventsTest, TheEnd) {
  Failure cause;
  cause.exit_code = 3;
  cause.rank = 5;
  const Finish finish{{.success = false, .cause = cause, .exit_code = 3, .round = RoundId{2}}};
  const Json line = Line(EventOf(finish, {}));
  EXPECT_EQ(line["event"], "run.finished");
  EXPECT_EQ(line["success"], false);
  EXPECT_EQ(line["exit_code"], 3);
  EXPECT_EQ(Line(AgentEnded(3))["exit_code"], 3);
  EXPECT_FALSE(EventOf(DeadlinePassed{}, {}));
}

TEST(AgentEventsTest, WhileItsWorkersRunOnlyTheirRanksWait) {
  SupervisorState state;
  EXPECT_EQ(Line(EventOf(Waiting{"for node 1"}, state))["event"], "node.waiting");
  state.workers_live = true;
  EXPECT_EQ(Line(EventOf(Waiting{"no progress for 60 s"}, state))["event"], "ranks.wait");
}

}  // namespace
}  // namespace ddprun
