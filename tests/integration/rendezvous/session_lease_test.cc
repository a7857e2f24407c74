// SPDX-License-Identifier: Apache-2.0
// Connections that break under nodes that live, and nodes that come back too late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"
#include "tests/integration/rendezvous/relay.h"
#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr RoundId kFirst{1};
constexpr RoundId kSecond{2};

class SessionLeaseTest : public ::testing::Test {
 protected:
  SessionLeaseTest() : server_(StartServer()), relay_(server_->port()) {}

  std::unique_ptr<RendezvousServer> server_;
  Relay relay_;
};

TEST_F(SessionLeaseTest, ANodeWhoseConnectionBreaksGoesOnWithItsRound) {
  TestNode a(server_->target(), LeasedJoin("a"));
  TestNode b(relay_.target(), LeasedJoin("b"));
  ASSERT_TRUE(b.Next<Start>());
  for (int i = 0; i < 5; ++i) {
    relay_.Cut();
    const auto reconnecting = b.Next<Reconnecting>();
    ASSERT_TRUE(reconnecting);
    EXPECT_GT(reconnecting->remaining, seconds(20));
    ASSERT_TRUE(b.Next<Reconnected>());
    ASSERT_TRUE(b.Next<Start>()) << "told again";
  }
  a.Send(NodeSucceeded{kFirst});
  b.Send(NodeSucceeded{kFirst});
  EXPECT_TRUE(a.Next<Finish>()->verdict.success);
  EXPECT_TRUE(b.Next<Finish>()->verdict.success);
}

TEST_F(SessionLeaseTest, AVerdictThatIsLostOnItsWayIsSentAgain) {
  TestNode a(server_->target(), LeasedJoin("a"));
  TestNode b(relay_.target(), LeasedJoin("b"));
  AwaitStart(a, kFirst);
  AwaitStart(b, kFirst);
  b.Send(NodeSucceeded{kFirst});
  relay_.LoseAnswers(true);
  a.Send(NodeSucceeded{kFirst});
  ASSERT_TRUE(a.Next<Finish>());
  relay_.LoseAnswers(false);
  relay_.Cut();
  ASSERT_TRUE(b.Next<Reconnecting>());
  const auto finish = b.Next<Finish>();
  ASSERT_TRUE(finish);
  EXPECT_TRUE(finish->verdict.success);
  EXPECT_TRUE(b.Next<SessionEnded>()->status.ok());
  server_->WaitUntilDrained(kEventDeadline);
}

TEST_F(SessionLeaseTest, WhatWasSaidWhileTheConnectionWasCutArrives) {
  TestNode a(server_->target(), LeasedJoin("a"));
  TestNode b(relay_.target(), LeasedJoin("b"));
  AwaitStart(a, kFirst);
  AwaitStart(b, kFirst);
  for (const RoundId round : {kFirst, kSecond}) {
    Failure failure;
    failure.kind = FailureKind::kWorkerExited;
    failure.exit_code = 7;
    relay_.Cut();
    b.Send(WorkerFailed{round, failure});
    const auto stop = a.Next<Stop>();
    ASSERT_TRUE(stop);
    EXPECT_EQ(stop->round, round);
    EXPECT_EQ(stop->cause.exit_code, 7);
    a.Send(NodeStopped{round, 4000});
    relay_.Cut();
    b.Send(NodeStopped{round, 4001});
    if (round == kFirst) AwaitStart(a, kSecond);
  }
  const auto finish = a.Next<Finish>();
  ASSERT_TRUE(finish);
  EXPECT_EQ(finish->verdict.exit_code, 7);
}

TEST_F(SessionLeaseTest, ASilentNodeIsLostAndItsReturnRefused) {
  TestNode a(server_->target(), LeasedJoin("a", seconds(2)));
  TestNode b(server_->target(), LeasedJoin("b", seconds(2)));
  const auto accepted = a.Next<Accepted>();
  ASSERT_TRUE(accepted);
  EXPECT_EQ(accepted->lease, seconds(2));
  EXPECT_EQ(accepted->heartbeat, milliseconds(500));
  // Nobody sends heartbeats here but the test: b does, a does not.
  std::optional<Stop> stop;
  while (!stop && !testing::Test::HasFatalFailure()) {
    b.Send(Heartbeat{});
    stop = b.Next<Stop>(milliseconds(300));
  }
  EXPECT_EQ(stop->cause.kind, FailureKind::kNodeLost);
  EXPECT_EQ(stop->cause.host, "a");
  const auto refused = a.Next<Refused>();
  ASSERT_TRUE(refused);
  EXPECT_THAT(std::string(refused->status.message()), HasSubstr("sent nothing for 2 s"));
}

// As of ssh, kubectl port-forward and load balancers.
TEST_F(SessionLeaseTest, AForwarderMayBeRestarted) {
  auto relay = std::make_unique<Relay>(server_->port());
  const int port = relay->port();
  TestNode a(server_->target(), LeasedJoin("a"));
  TestNode b(relay->target(), LeasedJoin("b"));
  ASSERT_TRUE(b.Next<Start>());
  relay.reset();
  ASSERT_TRUE(b.Next<Reconnecting>());
  EXPECT_FALSE(b.Next<SessionEnded>(kRefusedTimeout / 5))
      << "several attempts are refused in that time";
  relay = std::make_unique<Relay>(server_->port(), port);
  EXPECT_TRUE(b.Next<Reconnected>());
}

TEST_F(SessionLeaseTest, AServiceThatHasEndedIsNotWaitedForLong) {
  TestNode a(server_->target(), LeasedJoin("a"));
  TestNode b(server_->target(), LeasedJoin("b"));
  ASSERT_TRUE(b.Next<Start>());
  server_.reset();
  const auto ended = b.Next<SessionEnded>();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(ended->status.message()),
              HasSubstr("it no longer listens, tried for 2 s: connection refused"));
}

}  // namespace
}  // namespace ddprun
