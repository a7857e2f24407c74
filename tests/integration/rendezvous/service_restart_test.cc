// SPDX-License-Identifier: Apache-2.0
// A service with a journal that is killed and started again, under nodes that live.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "rendezvous/proxy/store_proxy.h"
#include "tests/integration/rendezvous/service_program.h"
#include "tests/integration/rendezvous/store_contract.h"
#include "tests/integration/rendezvous/test_node.h"
#include "tests/testing/paths.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using V = StoreVerb;

constexpr RoundId kFirst{1};
constexpr RoundId kSecond{2};

class ServiceRestartTest : public ::testing::Test {
 protected:
  ServiceRestartTest() { StartService("0"); }

  void StartService(const std::string& port) {
    service_ = std::make_unique<ServiceProgram>(
        std::vector<std::string>{"--insecure", "--journal", folder_ / "journal", "--port", port},
        std::map<std::string, std::string>{});
    ASSERT_GT(service_->port(), 0) << service_->process().err();
  }
  void KillAndStart() {
    const std::string port = std::to_string(service_->port());
    service_->Kill();
    StartService(port);
  }

  TempDir folder_;
  std::unique_ptr<ServiceProgram> service_;
};

TEST_F(ServiceRestartTest, TheRoundGoesOn) {
  TestNode a(service_->target(), LeasedJoin("a"));
  TestNode b(service_->target(), LeasedJoin("b"));
  AwaitStart(a, kFirst);
  AwaitStart(b, kFirst);
  for (int i = 0; i < 3; ++i) {
    KillAndStart();
    EXPECT_TRUE(a.Next<Reconnected>());
    EXPECT_TRUE(b.Next<Reconnected>());
  }
  a.Send(NodeSucceeded{kFirst});
  b.Send(NodeSucceeded{kFirst});
  EXPECT_TRUE(a.Next<Finish>()->verdict.success);
  EXPECT_TRUE(b.Next<Finish>()->verdict.success);
}

TEST_F(ServiceRestartTest, AFormingRoundGoesOnForming) {
  TestNode a(service_->target(), LeasedJoin("a"));
  ASSERT_TRUE(a.Next<Accepted>());
  KillAndStart();
  ASSERT_TRUE(a.Next<Reconnected>());
  EXPECT_THAT(a.Next<Waiting>()->reason, HasSubstr("waiting for 1 of 2 nodes"));
  TestNode b(service_->target(), LeasedJoin("b"));
  AwaitStart(a, kFirst);
  AwaitStart(b, kFirst);
}

TEST_F(ServiceRestartTest, ARoundThatWasBreakingGoesOnBreaking) {
  TestNode a(service_->target(), LeasedJoin("a"));
  TestNode b(service_->target(), LeasedJoin("b"));
  AwaitStart(a, kFirst);
  AwaitStart(b, kFirst);
  Failure failure;
  failure.kind = FailureKind::kWorkerExited;
  failure.exit_code = 7;
  a.Send(WorkerFailed{kFirst, failure});
  ASSERT_TRUE(b.Next<Stop>());
  a.Send(NodeStopped{kFirst, 4000});
  KillAndStart();
  EXPECT_EQ(b.Next<Stop>()->cause.exit_code, 7) << "told again";
  b.Send(NodeStopped{kFirst, 4000});
  AwaitStart(a, kSecond);
  AwaitStart(b, kSecond);
}

TEST_F(ServiceRestartTest, ALeaseBeginsAnewAndIsKept) {
  TestNode a(service_->target(), LeasedJoin("a", milliseconds(1500)));
  auto b = std::make_unique<TestNode>(service_->target(), LeasedJoin("b", milliseconds(1500)));
  AwaitStart(a, kFirst);
  AwaitStart(*b, kFirst);
  service_->Kill();
  // It would say that it leaves, but for the service that is not there to hear it.
  b.reset();
  StartService(std::to_string(service_->port()));
  const auto stop = a.Next<Stop>();
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->cause.kind, FailureKind::kNodeLost);
  EXPECT_EQ(stop->cause.host, "b");
}

TEST_F(ServiceRestartTest, ARunThatIsOverIsForgotten) {
  {
    TestNode a(service_->target(), LeasedJoin("a"));
    TestNode b(service_->target(), LeasedJoin("b"));
    AwaitStart(a, kFirst);
    AwaitStart(b, kFirst);
    a.Send(NodeSucceeded{kFirst});
    b.Send(NodeSucceeded{kFirst});
    ASSERT_TRUE(a.Next<Finish>());
    ASSERT_TRUE(b.Next<Finish>());
  }
  KillAndStart();
  Join join = LeasedJoin("c");
  join.nodes_min = join.nodes_max = 1;
  TestNode c(service_->target(), join);
  const auto start = c.Next<Start>();
  ASSERT_TRUE(start);
  EXPECT_EQ(start->round, kFirst) << "another run of the same name";
}

TEST_F(ServiceRestartTest, NoAcknowledgedWriteIsLostAndNoneIsDoneTwice) {
  constexpr int kKills = 8;
  TestNode a(service_->target(), LeasedJoin("a"));
  TestNode b(service_->target(), LeasedJoin("b"));
  AwaitStart(a, kFirst);
  AwaitStart(b, kFirst);
  std::vector<std::unique_ptr<StoreProxy>> proxies;
  for (const std::string name : {"a", "b"}) {
    auto proxy = StoreProxy::Start({.socket_path = folder_ / name,
                                    .channel = MakeServiceChannel(service_->target()),
                                    .run_id = "run",
                                    .node_id = NodeId{"id-" + name},
                                    .reconnect_timeout = kEventDeadline});
    ASSERT_TRUE(proxy.ok()) << proxy.status();
    (*proxy)->SetRound(kFirst);
    proxies.push_back(*std::move(proxy));
  }
  std::atomic<bool> over = false;
  std::atomic<int> times = 0;
  std::vector<std::thread> workers;
  for (int w = 0; w < 4; ++w) {
    workers.emplace_back([&, w] {
      auto store = StoreClient::Connect(
          {.target = "unix:" + (folder_ / (w % 2 == 0 ? "a" : "b")), .round = kFirst});
      StoreOp add = MakeOp(V::kAdd, {"counter"});
      add.number = 1;
      for (int i = 0; !over; ++i) {
        ++times;
        const std::string key = std::to_string(w) + "/" + std::to_string(i);
        EXPECT_TRUE((*store)->Call(add).status.ok());
        EXPECT_TRUE((*store)->Call(MakeOp(V::kSet, {key}, {key})).status.ok());
        EXPECT_TRUE((*store)->Call(MakeOp(V::kAppend, {"text"}, {"x"})).status.ok());
        EXPECT_EQ(ValueOf((*store)->Call(MakeOp(V::kGet, {key}))), key);
      }
    });
  }
  for (int kill = 0; kill < kKills; ++kill) {
    const int before = times;
    while (times < before + 20) std::this_thread::yield();
    KillAndStart();
  }
  over = true;
  for (std::thread& worker : workers) worker.join();
  auto store = StoreClient::Connect({.target = "unix:" + (folder_ / "a"), .round = kFirst});
  EXPECT_EQ(ValueOf((*store)->Call(MakeOp(V::kGet, {"counter"}))), std::to_string(times));
  EXPECT_EQ(ValueOf((*store)->Call(MakeOp(V::kGet, {"text"}))).size(),
            static_cast<std::size_t>(times));
  // "counter", "text", and one for each turn.
  EXPECT_EQ((*store)->Call(MakeOp(V::kNumKeys, {})).number, times + 2);
}

TEST_F(ServiceRestartTest, AnotherServiceOnTheSameJournalIsRefused) {
  RunningProcess other({BuildPath("bin/ddprun-rendezvous"), "--port=0", "--insecure", "--journal",
                        folder_ / "journal"});
  EXPECT_EQ(other.Wait(), 1);
  EXPECT_THAT(other.err(), HasSubstr("belongs to a service that runs (process " +
                                     std::to_string(service_->pid()) + ")"));
}

TEST_F(ServiceRestartTest, AFileThatIsNoJournalIsOneSentence) {
  TestNode a(service_->target(), LeasedJoin("a"));
  ASSERT_TRUE(a.Next<Accepted>());
  service_->Kill();
  const std::string path = (folder_ / "journal") + "/journal";
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(2);
  file.write("\xff\xff\xff", 3);
  file.close();
  RunningProcess other({BuildPath("bin/ddprun-rendezvous"), "--port=0", "--insecure", "--journal",
                        folder_ / "journal"});
  EXPECT_EQ(other.Wait(), 2) << "that folder is not for --journal";
  EXPECT_THAT(other.err(), HasSubstr(path));
  EXPECT_EQ(std::count(other.err().begin(), other.err().end(), '\n'), 1) << other.err();
}

}  // namespace
}  // namespace ddprun
