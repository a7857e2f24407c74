// SPDX-License-Identifier: Apache-2.0
// The runs of one secret in one service: a certificate is for one of them, and its holder, be it a
// member that misbehaves or somebody who has stolen it, reads, stops and joins no other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/client/watch_client.h"
#include "rendezvous/proxy/store_upstream.h"
#include "rendezvous/wire/grpc_channel.h"
#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kToken[] = "00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";

Token TheToken() { return *Token::Parse(kToken, "it"); }

class RunsApartTest : public ::testing::Test {
 protected:
  explicit RunsApartTest(std::optional<std::string> default_run_id = std::nullopt) {
    auto server = RendezvousServer::Start({.address = "127.0.0.1",
                                           .port = 0,
                                           .credentials = *MintServiceCredentials(TheToken()),
                                           .default_run_id = std::move(default_run_id)});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  TlsCredentials NodeOf(const std::string& run_id, const std::string& name) {
    return *MintNodeCredentials(TheToken(), run_id, "id-" + name);
  }
  std::shared_ptr<ServiceChannel> Channel(TlsCredentials credentials) {
    return MakeServiceChannel(server_->target(), std::move(credentials));
  }
  std::shared_ptr<ServiceChannel> Operator(const std::optional<std::string>& run_id) {
    return Channel(*MintOperatorCredentials(TheToken(), run_id, "ctl-desk-1"));
  }

  // A node of `run_id`, with a certificate for `certified`.
  std::unique_ptr<TestNode> Join(const std::string& run_id, const std::string& certified,
                                 const std::string& name, int nodes = 2) {
    ddprun::Join join = MakeJoin(name, nodes);
    join.run_id = run_id;
    return std::make_unique<TestNode>(server_->target(), join, kEventDeadline,
                                      NodeOf(certified, name));
  }

  absl::Status StoreEnd(const std::string& run_id, const std::string& certified,
                        const std::string& name) {
    struct End {
      absl::Notification done;
      absl::Status status;
    };
    const auto end = std::make_shared<End>();
    const auto stream = std::make_shared<StoreUpstream>(
        MakeChannel(server_->target(), NodeOf(certified, name)), server_->target(),
        StoreHello{.run_id = run_id, .node_id = "id-" + name, .stream = 1},
        StoreLink::Handlers{[](StoreBatch*) { return false; },
                            [](std::vector<StoreReply>) { return true; },
                            [end](const absl::Status& status) {
                              end->status = status;
                              end->done.Notify();
                            }});
    stream->Begin();
    end->done.WaitForNotificationWithTimeout(absl::FromChrono(kEventDeadline));
    return end->status;
  }

  std::vector<std::string> RunsSeenBy(const std::shared_ptr<ServiceChannel>& channel) {
    const auto status = GetStatus(channel, "", kEventDeadline);
    EXPECT_TRUE(status.ok()) << status.status();
    std::vector<std::string> names;
    if (!status.ok()) return names;
    for (const RunStatus& run : status->runs) names.push_back(run.run_id);
    return names;
  }

  std::unique_ptr<RendezvousServer> server_;
};

TEST_F(RunsApartTest, AMemberOfOneRunJoinsNoOther) {
  auto ours = Join("ours", "ours", "a");
  ASSERT_TRUE(ours->Next<Waiting>());
  auto thief = Join("ours", "theirs", "b");
  const auto refused = thief->Next<Refused>();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(refused->status.message()),
              HasSubstr("of run 'ours', and its certificate was made for another one"));
  EXPECT_TRUE(Join("ours", "ours", "b")->Next<Start>());
}

TEST_F(RunsApartTest, AMemberOfOneRunReadsAndWritesNoKeyOfAnother) {
  auto ours = Join("ours", "ours", "a", 1);
  ASSERT_TRUE(ours->Next<Start>());
  EXPECT_EQ(StoreEnd("ours", "theirs", "a").code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(RunsApartTest, AMemberOfOneRunReadsNothingOfAnother) {
  auto ours = Join("ours", "ours", "a");
  auto theirs = Join("theirs", "theirs", "b");
  ASSERT_TRUE(ours->Next<Waiting>() && theirs->Next<Waiting>());
  const auto thief = Channel(NodeOf("theirs", "b"));
  EXPECT_EQ(GetStatus(thief, "ours", kEventDeadline).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(RunsSeenBy(thief), std::vector<std::string>{"theirs"});
  EXPECT_EQ(RunsSeenBy(Operator("theirs")), std::vector<std::string>{"theirs"});
  EXPECT_EQ(RunsSeenBy(Operator(std::nullopt)), (std::vector<std::string>{"ours", "theirs"}));
  const auto watch = RunWatch::Open(thief, "ours", {.output = true});
  const auto news = watch->Next(std::chrono::steady_clock::now() + kEventDeadline);
  EXPECT_EQ(news.status().code(), absl::StatusCode::kPermissionDenied) << news.status();
}

TEST_F(RunsApartTest, AMemberOfOneRunStopsNoOther) {
  auto ours = Join("ours", "ours", "a");
  ASSERT_TRUE(ours->Next<Waiting>());
  for (const auto& thief : {Channel(NodeOf("theirs", "b")), Operator("theirs")}) {
    for (const char* const run_id : {"ours", ""}) {
      const auto stopped = StopRun(thief, run_id, {.by = "desk"}, kEventDeadline);
      EXPECT_NE(stopped.status().code(), absl::StatusCode::kOk) << run_id;
      EXPECT_THAT(std::string(stopped.status().message()), Not(HasSubstr("ours' ends")));
      const auto drained =
          DrainNode(thief, run_id, {.by = "desk", .node = "a", .force = true}, kEventDeadline);
      EXPECT_NE(drained.status().code(), absl::StatusCode::kOk) << run_id;
    }
  }
  EXPECT_EQ(ReportLoss(Channel(NodeOf("theirs", "a")),
                       {.protocol_version = kProtocolVersion,
                        .run_id = "ours",
                        .node_id = NodeId{"id-a"},
                        .reason = "no reason"},
                       kEventDeadline)
                .code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(Join("ours", "ours", "b")->Next<Start>()) << "the run is as it was";
}

// The service has no journal, which is the last thing that is asked for.
TEST_F(RunsApartTest, OnlyAnOperatorInjectsFaultsAndOnlyOneOfAllRunsKillsTheService) {
  auto ours = Join("ours", "ours", "a");
  ASSERT_TRUE(ours->Next<Waiting>());
  const auto message = [](const std::shared_ptr<ServiceChannel>& channel, FaultKind kind) {
    const auto report = InjectFault(channel, "ours", {.by = "desk", .kind = kind, .node = "nobody"},
                                    kEventDeadline);
    return std::string(report.status().message());
  };
  const auto node = Channel(NodeOf("ours", "a"));
  for (const FaultKind kind : {FaultKind::kKill, FaultKind::kAgent, FaultKind::kService})
    EXPECT_THAT(message(node, kind), HasSubstr("only an operator may inject faults"));
  EXPECT_THAT(message(Operator("ours"), FaultKind::kService),
              HasSubstr("is for one run alone, and the end of the service concerns all runs"));
  EXPECT_THAT(message(Operator("theirs"), FaultKind::kService),
              HasSubstr("for run 'theirs' alone"));
  EXPECT_THAT(message(Operator(std::nullopt), FaultKind::kService), HasSubstr("has no journal"));
  EXPECT_THAT(message(Operator("ours"), FaultKind::kAgent), Not(HasSubstr("certificate")));
}

TEST_F(RunsApartTest, WhoStoppedARunIsSaidWithTheAddress) {
  auto ours = Join("ours", "ours", "a");
  ASSERT_TRUE(ours->Next<Waiting>());
  ASSERT_TRUE(StopRun(Operator("ours"), "ours", {.by = "another-desk"}, kEventDeadline).ok());
  const auto finish = ours->Next<Finish>();
  ASSERT_TRUE(finish);
  EXPECT_EQ(ToSentence(*finish->verdict.cause), "stopped by ddpctl from another-desk (127.0.0.1)");
}

// One connection with one certificate that begins as many runs as it can.
TEST_F(RunsApartTest, ACertificateBeginsOneRun) {
  std::vector<std::unique_ptr<TestNode>> nodes;
  for (int i = 0; i < 8; ++i) {
    nodes.push_back(Join("flood-" + std::to_string(i), "flood-0", "a"));
  }
  ASSERT_TRUE(nodes[0]->Next<Waiting>());
  for (std::size_t i = 1; i < nodes.size(); ++i) EXPECT_TRUE(nodes[i]->Next<Refused>());
  EXPECT_EQ(RunsSeenBy(Operator(std::nullopt)), std::vector<std::string>{"flood-0"});
}

TEST_F(RunsApartTest, AStolenCertificateIsOfNoUseAfterItsTime) {
  const std::time_t then = std::time(nullptr) - kNodeCertificateSeconds - 60;
  ddprun::Join join = MakeJoin("a", 1);
  TestNode thief(server_->target(), join, std::chrono::milliseconds(500),
                 *MintNodeCredentials(TheToken(), "run", "id-a", then));
  const auto ended = thief.Next<SessionEnded>();
  ASSERT_TRUE(ended);
  EXPECT_THAT(std::string(ended->status.message()),
              HasSubstr("does not accept this node's certificate"));
  EXPECT_THAT(RunsSeenBy(Operator(std::nullopt)), IsEmpty());
}

// Nodes that name no run are of the one that the service was started for, as are those that name
// it.
class DefaultRunTest : public RunsApartTest {
 protected:
  DefaultRunTest() : RunsApartTest("mine") {}
};

TEST_F(DefaultRunTest, NodesThatNameItAndNodesThatDoNotMeet) {
  auto unnamed = Join("", "", "a");
  auto named = Join("mine", "mine", "b");
  ASSERT_TRUE(unnamed->Next<Start>() && named->Next<Start>());
  EXPECT_EQ(RunsSeenBy(Channel(NodeOf("", "a"))), std::vector<std::string>{"mine"});
  EXPECT_EQ(StoreEnd("mine", "other", "a").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(Join("other", "", "c")->Next<Refused>());
}

}  // namespace
}  // namespace ddprun
