// SPDX-License-Identifier: Apache-2.0
// A status survives the way over the wire, and brings nothing to a terminal that could harm it.
#include "rendezvous/wire/status_convert.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

RunStatus Full() {
  Failure failure;
  failure.kind = FailureKind::kNodeLost;
  failure.host = "b";
  failure.message = "words";
  return {.run_id = "run",
          .phase = RunPhase::kBroken,
          .round = RoundId{3},
          .reason = "waiting",
          .remaining = std::chrono::milliseconds(1'234),
          .nodes_min = 1,
          .nodes_max = 2,
          .world_size = 4,
          .restarts_used = 5,
          .restarts_max = 6,
          .restarts_forgiven = 3,
          .last_failure = failure,
          .verdict = Verdict{.success = false, .cause = failure, .exit_code = 7},
          .node_count = 8,
          .nodes = {{.node_id = NodeId{"id"},
                     .host = "a",
                     .address = "10.0.0.1",
                     .node_rank = 0,
                     .state = NodeState::kAway,
                     .rank_first = 2,
                     .ranks = 2,
                     .silent = std::chrono::milliseconds(2'001),
                     .progress = Progress{7, 1, 310.5, "images", "data"},
                     .progress_age = std::chrono::milliseconds(11),
                     .topology = "s1.a",
                     .rank_reports = {{.step = 7, .loss = 0.5, .memory = 4096}, {.hung = true}}},
                    {.node_id = NodeId{"spare"}, .state = NodeState::kSpare}},
          .left_out = {{.host = "c", .failures = 2, .remaining = std::chrono::milliseconds(9)},
                       {.host = "d", .failures = 1}},
          .progress = Progress{7, -1, 621, "images", "all_reduce"},
          .progress_age = std::chrono::milliseconds(10),
          .preemption = Preemption{2, std::chrono::milliseconds(90'001), "b", 1, "SIGUSR1"},
          .still = {{.ranks = {{0, 0}}, .place = {Collective{"0", 57, "all_reduce"}, {}}}},
          .rank_order = RankOrder::kTopology,
          .loss = 0.25};
}

RunStatus ThereAndBack(const RunStatus& status) {
  v1::RunStatus message;
  EXPECT_TRUE(message.ParseFromString(ToProto(status).SerializeAsString()));
  return FromProto(message);
}

TEST(StatusConvertTest, EveryFieldComesBack) {
  EXPECT_EQ(ThereAndBack(Full()), Full());
  EXPECT_EQ(ThereAndBack(RunStatus{}), RunStatus{});
}

TEST(StatusConvertTest, EveryStateAndPhaseComesBack) {
  for (int i = 1; i <= static_cast<int>(RunPhase::kClosed); ++i) {
    RunStatus status = Full();
    status.phase = static_cast<RunPhase>(i);
    EXPECT_EQ(ThereAndBack(status).phase, status.phase);
  }
  for (int i = 1; i <= static_cast<int>(NodeState::kAway); ++i) {
    RunStatus status = Full();
    status.nodes[0].state = static_cast<NodeState>(i);
    EXPECT_EQ(ThereAndBack(status).nodes[0].state, status.nodes[0].state);
  }
}

TEST(StatusConvertTest, WhatIsUnknownOrHostileIsReadAsSomething) {
  v1::RunStatus message;
  message.set_phase(static_cast<v1::RunStatus::Phase>(99));
  message.set_run_id("a\x1b[2Jb");
  message.add_nodes()->set_state(static_cast<v1::NodeStatus::State>(99));
  message.mutable_nodes(0)->set_host("h\x1b]0;t\x07");
  message.add_left_out()->set_host("h\x1b]0;t\x07");
  const RunStatus status = FromProto(message);
  EXPECT_EQ(status.phase, RunPhase::kForming);
  EXPECT_EQ(status.run_id.find('\x1b'), std::string::npos);
  EXPECT_EQ(status.nodes[0].state, NodeState::kWaiting);
  EXPECT_EQ(status.nodes[0].host.find('\x1b'), std::string::npos);
  EXPECT_EQ(status.left_out[0].host.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace ddprun
