// SPDX-License-Identifier: Apache-2.0
// Nodes and a service in one process: joining, starting, restarting, ending.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

Failure Exited(int rank, int exit_code) {
  Failure failure;
  failure.kind = FailureKind::kWorkerExited;
  failure.rank = rank;
  failure.local_rank = 0;
  failure.exit_code = exit_code;
  failure.last_lines = {"one", "not UTF-8: \xff\xfe"};
  return failure;
}

TEST(SessionTest, OneNodeStartsAndSucceeds) {
  auto server = StartServer();
  Join join = MakeJoin("a", 1);
  join.local_world_size = 4;
  join.run_id = "";
  TestNode a(server->target(), join);
  const auto start = a.Next<Start>();
  ASSERT_TRUE(start);
  EXPECT_EQ(*start, (Start{.round = RoundId{1},
                           .run_id = "run",
                           .world_size = 4,
                           .master_addr = "127.0.0.1",
                           .master_port = 4000,
                           .role_world_size = 4}));
  a.Send(NodeSucceeded{start->round});
  const auto finish = a.Next<Finish>();
  ASSERT_TRUE(finish);
  EXPECT_TRUE(finish->verdict.success);
  EXPECT_EQ(finish->verdict.exit_code, 0);
  const auto ended = a.Next<SessionEnded>();
  ASSERT_TRUE(ended);
  EXPECT_TRUE(ended->status.ok()) << ended->status;
  server->WaitUntilDrained(kEventDeadline);
}

TEST(SessionTest, NodesAreToldWhatTheyWaitForAndStartTogether) {
  auto server = StartServer();
  Join join_a = MakeJoin("a", 2);
  join_a.node_rank = 1;
  join_a.local_world_size = 2;
  TestNode a(server->target(), join_a);
  const auto waiting = a.Next<Waiting>();
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->reason, "waiting for 1 of 2 nodes: node rank 0 has not joined");
  EXPECT_GT(waiting->remaining, milliseconds(20'000));
  Join join_b = MakeJoin("b", 2);
  join_b.local_world_size = 3;
  join_b.worker_port = 5000;
  TestNode b(server->target(), join_b);
  const auto start_a = a.Next<Start>();
  const auto start_b = b.Next<Start>();
  ASSERT_TRUE(start_a && start_b);
  EXPECT_EQ(start_b->node_rank, 0);
  EXPECT_EQ(start_b->rank_first, 0);
  EXPECT_EQ(start_a->node_rank, 1);
  EXPECT_EQ(start_a->rank_first, 3);
  EXPECT_EQ(start_a->world_size, 5);
  EXPECT_EQ(start_a->master_port, 5000);
}

TEST(SessionTest, AFailureStopsAllNodesAndEveryoneHearsTheSameVerdict) {
  auto server = StartServer();
  std::vector<std::unique_ptr<TestNode>> nodes;
  for (const char* name : {"a", "b", "c", "d"}) {
    nodes.push_back(std::make_unique<TestNode>(server->target(), MakeJoin(name, 4)));
  }
  int rank = 0;  // of the third node's worker: nodes have ranks in the order in which they came
  for (auto& node : nodes) {
    const auto start = node->Next<Start>();
    ASSERT_TRUE(start);
    if (node == nodes[2]) rank = start->rank_first;
  }
  nodes[2]->Send(WorkerFailed{RoundId{1}, Exited(rank, 7)});
  for (auto& node : nodes) {
    const auto stop = node->Next<Stop>();
    ASSERT_TRUE(stop);
    EXPECT_EQ(stop->cause.exit_code, 7);
    EXPECT_EQ(stop->cause.host, "c");
    EXPECT_EQ(stop->cause.last_lines.at(1), "not UTF-8: ??");
  }
  // What the others die of afterwards is no cause.
  nodes[0]->Send(WorkerFailed{RoundId{1}, Exited(0, 9)});
  for (auto& node : nodes) node->Send(NodeStopped{RoundId{1}, 4001});
  std::vector<Verdict> verdicts;
  for (auto& node : nodes) {
    const auto finish = node->Next<Finish>();
    ASSERT_TRUE(finish);
    verdicts.push_back(finish->verdict);
    const auto ended = node->Next<SessionEnded>();
    ASSERT_TRUE(ended);
    EXPECT_TRUE(ended->status.ok()) << ended->status;
  }
  EXPECT_EQ(verdicts[0].exit_code, 7);
  EXPECT_EQ(verdicts[0].cause->rank, rank);
  for (const Verdict& verdict : verdicts) EXPECT_EQ(verdict, verdicts[0]);
}

// Whoever starts again at once need not wait until the others have ended their streams.
TEST(SessionTest, ANewNodeAfterTheVerdictIsOfAnotherRun) {
  auto server = StartServer();
  TestNode a(server->target(), MakeJoin("a", 1));
  ASSERT_TRUE(a.Next<Start>());
  a.Send(NodeSucceeded{RoundId{1}});
  // Its stream has not ended: the node is slow to take its leave.
  ASSERT_TRUE(a.Next<Finish>());
  TestNode b(server->target(), MakeJoin("a", 1));
  EXPECT_EQ(b.Next<Start>()->round, RoundId{1});
  b.Send(NodeSucceeded{RoundId{1}});
  EXPECT_TRUE(b.Next<Finish>()->verdict.success);
}

TEST(SessionTest, ARestartKeepsRanksAndTakesNewPorts) {
  auto server = StartServer();
  Join join_a = MakeJoin("a", 2);
  Join join_b = MakeJoin("b", 2);
  join_a.restarts_max = join_b.restarts_max = 1;
  TestNode a(server->target(), join_a);
  ASSERT_TRUE(a.Next<Waiting>());
  TestNode b(server->target(), join_b);
  ASSERT_TRUE(a.Next<Start>() && b.Next<Start>());
  b.Send(WorkerFailed{RoundId{1}, Exited(1, 3)});
  ASSERT_TRUE(a.Next<Stop>() && b.Next<Stop>());
  b.Send(NodeStopped{RoundId{1}, 6001});
  a.Send(NodeStopped{RoundId{1}, 6000});
  const auto start_a = a.Next<Start>();
  const auto start_b = b.Next<Start>();
  ASSERT_TRUE(start_a && start_b);
  EXPECT_EQ(start_a->round, RoundId{2});
  EXPECT_EQ(start_a->restart_count, 1);
  EXPECT_EQ(start_a->node_rank, 0);
  EXPECT_EQ(start_b->node_rank, 1);
  EXPECT_EQ(start_b->master_port, 6000);
  a.Send(WorkerFailed{RoundId{2}, Exited(0, 4)});
  ASSERT_TRUE(a.Next<Stop>() && b.Next<Stop>());
  a.Send(NodeStopped{RoundId{2}, 6000});
  b.Send(NodeStopped{RoundId{2}, 6001});
  const auto finish = b.Next<Finish>();
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->verdict.exit_code, 4);
  EXPECT_EQ(finish->verdict.restart_count, 1);
}

TEST(SessionTest, ANameIsFreeAgainWhenItsRunIsOver) {
  auto server = StartServer(std::nullopt);
  for (int i = 0; i < 3; ++i) {
    TestNode a(server->target(), MakeJoin("a", 1));
    const auto start = a.Next<Start>();
    ASSERT_TRUE(start);
    EXPECT_EQ(start->round, RoundId{1});
    a.Send(NodeSucceeded{RoundId{1}});
    ASSERT_TRUE(a.Next<Finish>());
    server->WaitUntilDrained(kEventDeadline);
  }
}

TEST(SessionTest, RunsOfOneServiceDoNotMeet) {
  auto server = StartServer(std::nullopt);
  Join first = MakeJoin("a", 2);
  Join second = MakeJoin("b", 2);
  first.run_id = "one";
  second.run_id = "two";
  TestNode a(server->target(), first);
  TestNode b(server->target(), second);
  EXPECT_TRUE(a.Next<Waiting>() && b.Next<Waiting>());
}

}  // namespace
}  // namespace ddprun
