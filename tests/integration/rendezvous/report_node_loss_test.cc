// SPDX-License-Identifier: Apache-2.0
// What a warden says of its dead agent reaches the other nodes, and nobody else may say it.
#include "rendezvous/client/control_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "proto/text.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/wire/grpc_channel.h"
#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr char kToken[] = "00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";

TlsCredentials NodeOf(const std::string& node_id) {
  return *MintNodeCredentials(*Token::Parse(kToken, "it"), "run", node_id);
}

LossReport LossOf(const std::string& node_id) {
  return {.protocol_version = kProtocolVersion,
          .run_id = "run",
          .node_id = NodeId{node_id},
          .reason = "its agent was killed by signal 9 (SIGKILL)"};
}

class LossReportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = RendezvousServer::Start(
        {.address = "127.0.0.1",
         .port = 0,
         .credentials = *MintServiceCredentials(*Token::Parse(kToken, "it")),
         .default_run_id = "run"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  // A node of two that is not lost by its stream's end in this test's time.
  std::unique_ptr<TestNode> Join(const std::string& name, int restarts = 0) {
    ddprun::Join join = MakeJoin(name, 2);
    join.restarts_max = restarts;
    join.lease = std::chrono::hours(1);
    return std::make_unique<TestNode>(server_->target(), join, kEventDeadline,
                                      NodeOf("id-" + name));
  }

  absl::Status Report(const LossReport& report, const std::string& certificate) {
    return ReportLoss(MakeServiceChannel(server_->target(), NodeOf(certificate)), report,
                      kEventDeadline);
  }

  std::unique_ptr<RendezvousServer> server_;
};

TEST_F(LossReportTest, ReachesTheOtherNodeAtOnce) {
  auto a = Join("a");
  auto b = Join("b");
  ASSERT_TRUE(a->Next<Start>() && b->Next<Start>());
  EXPECT_TRUE(Report(LossOf("id-b"), "id-b").ok());
  const auto stop = a->Next<Stop>();
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->cause.kind, FailureKind::kNodeLost);
  EXPECT_EQ(stop->cause.host, "b");
  EXPECT_EQ(stop->cause.message, "its agent was killed by signal 9 (SIGKILL)");
  const auto refused = b->Next<Refused>();
  ASSERT_TRUE(refused) << "should it live after all, it must not go on";
  EXPECT_EQ(refused->status.code(), absl::StatusCode::kAborted);
  a->Send(NodeStopped{RoundId{1}, 4000});
  EXPECT_EQ(a->Next<Finish>()->verdict.cause, stop->cause);
  EXPECT_EQ(Report(LossOf("id-b"), "id-b").code(), absl::StatusCode::kNotFound) << "said twice";
}

TEST_F(LossReportTest, OfAnotherNodeIsRefused) {
  auto a = Join("a");
  auto b = Join("b");
  ASSERT_TRUE(a->Next<Start>() && b->Next<Start>());
  EXPECT_EQ(Report(LossOf("id-b"), "id-a").code(), absl::StatusCode::kPermissionDenied);
  LossReport old = LossOf("id-b");
  old.protocol_version = kProtocolVersion - 1;
  EXPECT_EQ(Report(old, "id-b").code(), absl::StatusCode::kFailedPrecondition);
  LossReport elsewhere = LossOf("id-b");
  elsewhere.run_id = "another";
  EXPECT_EQ(Report(elsewhere, "id-b").code(), absl::StatusCode::kPermissionDenied);
  // None of it has hurt.
  for (auto* node : {a.get(), b.get()}) node->Send(NodeSucceeded{RoundId{1}});
  const auto finish = a->Next<Finish>();
  ASSERT_TRUE(finish);
  EXPECT_TRUE(finish->verdict.success);
}

// The run's name is free again, although no stream ends after the report.
TEST_F(LossReportTest, OfTheLastNodeEndsTheRun) {
  auto a = Join("a", 3);
  ASSERT_TRUE(a->Next<Waiting>());
  EXPECT_TRUE(Report(LossOf("id-a"), "id-a").ok());
  ASSERT_TRUE(a->Next<Refused>());
  ASSERT_TRUE(a->Next<SessionEnded>());
  auto other = Join("b", 5);
  EXPECT_TRUE(other->Next<Waiting>()) << "other rules than the last run's";
}

TEST(LossReportUnreachedTest, SaysWhy) {
  const auto port = FindFreePort("127.0.0.1");
  ASSERT_TRUE(port.ok());
  const absl::Status status = ReportLoss(MakeServiceChannel("127.0.0.1:" + std::to_string(*port)),
                                         LossOf("id"), std::chrono::seconds(5));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "connection refused");
}

// Its last connections were taken, and are closed with the process.
TEST(LossReportUnreachedTest, AServiceThatIsJustEndingHasEnded) {
  auto listening = ListenOn("127.0.0.1", 0);
  ASSERT_TRUE(listening.ok());
  const std::string target = HostPort("127.0.0.1", listening->port);
  std::thread ending([&] {
    pollfd asked{.fd = listening->fd.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&asked, 1, static_cast<int>(kEventDeadline / std::chrono::milliseconds(1))), 1);
    const OwnedFd last(accept(listening->fd.get(), nullptr, nullptr));
    EXPECT_TRUE(last.valid());
    listening->fd.Reset();
  });
  const absl::Status status = ReportLoss(MakeServiceChannel(target), LossOf("id"), kEventDeadline);
  ending.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "connection refused");
}

}  // namespace
}  // namespace ddprun
