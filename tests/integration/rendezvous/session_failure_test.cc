// SPDX-License-Identifier: Apache-2.0
// What goes wrong between nodes and a service: nodes that vanish, are refused, come too late or too
// early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "rendezvous/base/addresses.h"
#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string RefusalOf(TestNode& node) {
  const auto refused = node.Next<Refused>();
  if (!refused) return "not refused";
  const auto ended = node.Next<SessionEnded>();
  EXPECT_TRUE(ended && ended->status.ok());
  return std::string(refused->status.message());
}

TEST(SessionFailureTest, ANodeThatVanishesIsTheCause) {
  auto server = StartServer();
  TestNode a(server->target(), MakeJoin("a", 2));
  ASSERT_TRUE(a.Next<Waiting>());
  TestNode b(server->target(), MakeJoin("b", 2));
  ASSERT_TRUE(a.Next<Start>() && b.Next<Start>());
  b.Close();
  const auto stop = a.Next<Stop>();
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->cause.kind, FailureKind::kNodeLost);
  EXPECT_EQ(stop->cause.host, "b");
  EXPECT_EQ(stop->cause.node_rank, 1);
  a.Send(NodeStopped{RoundId{1}, 4000});
  const auto finish = a.Next<Finish>();
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->verdict.exit_code, 1);
}

TEST(SessionFailureTest, AReplacementTakesTheLostNodesRank) {
  auto server = StartServer();
  const auto join = [](const std::string& name) {
    Join one = MakeJoin(name, 2);
    one.restarts_max = 2;
    return one;
  };
  TestNode a(server->target(), join("a"));
  ASSERT_TRUE(a.Next<Waiting>());
  TestNode b(server->target(), join("b"));
  ASSERT_TRUE(a.Next<Start>() && b.Next<Start>());
  a.Close();
  ASSERT_TRUE(b.Next<Stop>());
  b.Send(NodeStopped{RoundId{1}, 4000});
  const auto waiting = b.Next<Waiting>();
  ASSERT_TRUE(waiting);
  EXPECT_THAT(waiting->reason, HasSubstr("waiting for 1 of 2 nodes: node rank 0 has not joined "
                                         "(round 1 ended: node a (node rank 0) was lost: "));
  TestNode c(server->target(), join("c"));
  const auto start = c.Next<Start>();
  ASSERT_TRUE(start);
  EXPECT_EQ(start->node_rank, 0);
  EXPECT_EQ(start->restart_count, 1);
  EXPECT_EQ(b.Next<Start>()->node_rank, 1);
}

TEST(SessionFailureTest, LeavingForGoodEndsTheRunWithItsReason) {
  auto server = StartServer();
  Join join_a = MakeJoin("a", 2);
  Join join_b = MakeJoin("b", 2);
  join_a.restarts_max = join_b.restarts_max = 5;
  // It hosts the service.
  join_a.hosts_service = true;
  const auto events = std::make_shared<SeenEvents>();
  auto a =
      server->OpenSession(join_a, [events](SessionEvent event) { events->Add(std::move(event)); });
  TestNode b(server->target(), join_b);
  ASSERT_TRUE(events->Next<Start>() && b.Next<Start>());
  Failure reason;
  reason.kind = FailureKind::kNodeInterrupted;
  reason.signal = 2;
  a->Send(Leave{reason, /*close_run=*/true});
  a->Send(NodeStopped{RoundId{1}, 4000});
  const auto stop = b.Next<Stop>();
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->cause.kind, FailureKind::kNodeInterrupted);
  EXPECT_EQ(stop->cause.host, "a");
  // The service counts as not drained while a node is still to be told.
  std::thread late([&] {
    b.Send(NodeStopped{RoundId{1}, 4000});
    EXPECT_TRUE(events->Next<Finish>());
    a.reset();
  });
  server->WaitUntilDrained(kEventDeadline);
  late.join();
  const auto finish = b.Next<Finish>();
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->verdict.exit_code, 130);
}

TEST(SessionFailureTest, TheJoinDeadlineEndsTheRun) {
  auto server = StartServer();
  Join join = MakeJoin("a", 2);
  join.node_rank = 0;
  join.join_timeout = milliseconds(200);
  TestNode a(server->target(), join);
  const auto finish = a.Next<Finish>();
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->verdict.exit_code, 1);
  EXPECT_EQ(finish->verdict.cause->kind, FailureKind::kJoinTimeout);
  EXPECT_THAT(finish->verdict.cause->message,
              HasSubstr("1 of 2 nodes did not join within 0.2 s (node rank 1); here: a"));
}

TEST(SessionFailureTest, DisagreementIsRefusedWithBothSidesNamed) {
  auto server = StartServer();
  TestNode a(server->target(), MakeJoin("a", 2));
  ASSERT_TRUE(a.Next<Waiting>());
  TestNode b(server->target(), MakeJoin("b", 3));
  EXPECT_EQ(RefusalOf(b),
            "node b was started with --nnodes 3, the run has --nnodes 2 (set by node a); start all "
            "nodes with the same --nnodes");
  Join other_version = MakeJoin("c", 2);
  other_version.protocol_version = 99;
  TestNode c(server->target(), other_version);
  EXPECT_THAT(RefusalOf(c), HasSubstr("node c speaks protocol 99"));
}

TEST(SessionFailureTest, ASurplusNodeStandsByWhileTheRunGoesOn) {
  auto server = StartServer();
  TestNode a(server->target(), MakeJoin("a", 1));
  ASSERT_TRUE(a.Next<Start>());
  TestNode b(server->target(), MakeJoin("b", 1));
  const auto waiting = b.Next<Waiting>();
  ASSERT_TRUE(waiting);
  EXPECT_THAT(waiting->reason, HasSubstr("standing by as a spare"));
  a.Send(NodeSucceeded{RoundId{1}});
  EXPECT_TRUE(a.Next<Finish>());
  EXPECT_TRUE(b.Next<Finish>());
}

TEST(SessionFailureTest, AnUnnamedRunIsRefusedWhereThereIsNoDefault) {
  auto server = StartServer(std::nullopt);
  Join join = MakeJoin("a", 1);
  join.run_id = "";
  TestNode a(server->target(), join);
  EXPECT_THAT(RefusalOf(a), HasSubstr("--rdzv-id"));
}

TEST(SessionFailureTest, ANodeWaitsForAServiceThatIsNotUpYet) {
  const auto port = FindFreePort("127.0.0.1");
  ASSERT_TRUE(port.ok());
  TestNode a("127.0.0.1:" + std::to_string(*port), MakeJoin("a", 1));
  const auto connecting = a.Next<Connecting>();
  ASSERT_TRUE(connecting);
  EXPECT_EQ(connecting->reason, "connection refused");
  auto server =
      RendezvousServer::Start({.address = "127.0.0.1", .port = *port, .default_run_id = "run"});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(a.Next<Start>());
}

TEST(SessionFailureTest, ANodeGivesUpAtItsDeadlineAndSaysWhy) {
  const auto port = FindFreePort("127.0.0.1");
  ASSERT_TRUE(port.ok());
  TestNode a("127.0.0.1:" + std::to_string(*port), MakeJoin("a", 1), milliseconds(300));
  const auto ended = a.Next<SessionEnded>();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(ended->status.message()),
              HasSubstr("was not reached within 0.3 s: connection refused"));
}

TEST(SessionFailureTest, AnUnknownHostIsNamed) {
  TestNode a("no-such-host.invalid:29500", MakeJoin("a", 1));
  const auto connecting = a.Next<Connecting>();
  ASSERT_TRUE(connecting);
  EXPECT_EQ(connecting->reason, "cannot resolve 'no-such-host.invalid'");
}

TEST(SessionFailureTest, TheServicesEndIsUnavailableToNodesThatWereIn) {
  auto server = StartServer();
  TestNode a(server->target(), MakeJoin("a", 1));
  ASSERT_TRUE(a.Next<Start>());
  server.reset();
  const auto ended = a.Next<SessionEnded>();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->status.code(), absl::StatusCode::kUnavailable) << ended->status;
}

// It has an hour to reach a service, which closing it does not wait for.
TEST(SessionFailureTest, ClosingAClientThatNeverReachedAnyoneDoesNotWaitForAService) {
  TestNode a("127.0.0.1:1", MakeJoin("a", 1), std::chrono::hours(1));
  ASSERT_TRUE(a.Next<Connecting>());
  std::future<void> closed = std::async(std::launch::async, [&a] { a.Close(); });
  ASSERT_EQ(closed.wait_for(kEventDeadline), std::future_status::ready);
}

}  // namespace
}  // namespace ddprun
