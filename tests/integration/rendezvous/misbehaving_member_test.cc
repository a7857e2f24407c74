// SPDX-License-Identifier: Apache-2.0
// What a member of a run, which has the secret, can do to the others by what it sends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {
namespace {

constexpr RoundId kFirst{1};

Join RestartingJoin(const std::string& name) {
  Join join = MakeJoin(name, 2);
  join.restarts_max = 3;
  return join;
}

TEST(MisbehavingMemberTest, ExitCode256IsNoSuccess) {
  auto server = StartServer();
  TestNode good(server->target(), MakeJoin("good", 2));
  TestNode bad(server->target(), MakeJoin("bad", 2));
  ASSERT_TRUE(good.Next<Start>() && bad.Next<Start>());
  Failure forged;
  forged.exit_code = 256;
  forged.host = "good";
  forged.node_rank = 0;
  forged.rank = 0;
  bad.Send(WorkerFailed{kFirst, forged});
  const auto stop = good.Next<Stop>();
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->cause.host, "bad");
  good.Send(NodeStopped{kFirst, 4000, {}});
  bad.Send(NodeStopped{kFirst, 4000, {}});
  const auto finish = good.Next<Finish>();
  ASSERT_TRUE(finish);
  EXPECT_FALSE(finish->verdict.success);
  EXPECT_EQ(finish->verdict.exit_code, 1);
  EXPECT_EQ(finish->verdict.cause->host, "bad");
}

// It also says that it hosts the service, which it would have to share a process with.
TEST(MisbehavingMemberTest, ClosingTheRunIsTheHostsAlone) {
  auto server = StartServer();
  TestNode good(server->target(), RestartingJoin("good"));
  Join join = RestartingJoin("bad");
  join.hosts_service = true;
  TestNode bad(server->target(), join);
  ASSERT_TRUE(good.Next<Start>() && bad.Next<Start>());
  Leave leave;
  leave.reason.kind = FailureKind::kNodeInterrupted;
  leave.close_run = true;
  bad.Send(leave);
  const auto stop = good.Next<Stop>();
  ASSERT_TRUE(stop);
  EXPECT_FALSE(stop->last);
  good.Send(NodeStopped{kFirst, 4000, {}});
  TestNode another(server->target(), RestartingJoin("another"));
  EXPECT_EQ(ToNumber(another.Next<Start>()->round), 2u);
}

}  // namespace
}  // namespace ddprun
