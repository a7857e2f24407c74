// SPDX-License-Identifier: Apache-2.0
// Two nodes' agents, their workers, and the service: what is kept stays true, and what is asked is
// done once over connections that break.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "rendezvous/proxy/store_proxy.h"
#include "tests/integration/rendezvous/relay.h"
#include "tests/integration/rendezvous/store_contract.h"
#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {
namespace {

using V = StoreVerb;
using ::testing::HasSubstr;

class StoreAgentsTest : public ::testing::Test {
 protected:
  StoreAgentsTest()
      : server_(StartServer()),
        relay_(server_->port()),
        a_(server_->target(), MakeJoin("a", 2)),
        b_(server_->target(), MakeJoin("b", 2)) {
    EXPECT_TRUE(a_.Next<Start>());
    EXPECT_TRUE(b_.Next<Start>());
    // The session is not what is tested here: only the store's streams go over the relay.
    proxy_a_ = StartProxy("a", kEventDeadline);
    proxy_b_ = StartProxy("b", std::chrono::seconds(0));
  }

  std::unique_ptr<StoreProxy> StartProxy(const std::string& name,
                                         std::chrono::milliseconds reconnect_timeout,
                                         std::shared_ptr<StoreConnector> connector = nullptr) {
    auto proxy = StoreProxy::Start({.socket_path = dir_ / name,
                                    .channel = MakeServiceChannel(relay_.target()),
                                    .connector = std::move(connector),
                                    .run_id = "run",
                                    .node_id = NodeId{"id-" + name},
                                    .reconnect_timeout = reconnect_timeout});
    EXPECT_TRUE(proxy.ok()) << proxy.status();
    (*proxy)->SetRound(RoundId{1});
    return *std::move(proxy);
  }

  std::shared_ptr<StoreClient> Connect(const std::string& name) {
    auto client = StoreClient::Connect({.target = "unix:" + (dir_ / name), .round = RoundId{1}});
    EXPECT_TRUE(client.ok()) << client.status();
    return *client;
  }

  TempDir dir_;
  std::unique_ptr<RendezvousServer> server_;
  Relay relay_;
  TestNode a_;
  TestNode b_;
  std::unique_ptr<StoreProxy> proxy_a_;
  std::unique_ptr<StoreProxy> proxy_b_;
};

// Each node reads what the other has just been told is written.
TEST_F(StoreAgentsTest, NobodyReadsWhatIsNotSoAnyMore) {
  auto a = Connect("a");
  auto b = Connect("b");
  for (int i = 0; i < 300; ++i) {
    StoreClient& writer = i % 2 == 0 ? *a : *b;
    StoreClient& reader = i % 2 == 0 ? *b : *a;
    const std::string value = std::to_string(i);
    switch (i % 3) {
      case 0:
        ASSERT_TRUE(writer.Call(MakeOp(V::kSet, {"k"}, {value})).status.ok());
        ASSERT_EQ(ValueOf(reader.Call(MakeOp(V::kGet, {"k"}))), value);
        break;
      case 1:
        ASSERT_TRUE(writer.Call(MakeOp(V::kMultiSet, {"k", "m"}, {value, value})).status.ok());
        ASSERT_THAT(reader.Call(MakeOp(V::kMultiGet, {"m", "k"})).values,
                    ::testing::ElementsAre(value, value));
        break;
      default:
        ASSERT_EQ(reader.Call(MakeOp(V::kCheck, {"k"})).number, 1);
        ASSERT_EQ(writer.Call(MakeOp(V::kDelete, {"k"})).number, 1);
        ASSERT_EQ(reader.Call(MakeOp(V::kCheck, {"k"})).number, 0);
        break;
    }
  }
}

TEST_F(StoreAgentsTest, OverConnectionsThatBreakEachOperationIsPerformedOnce) {
  constexpr int kWorkers = 6;
  constexpr int kCuts = 15;
  std::atomic<int> running = kWorkers;
  std::atomic<int> times = 0;
  std::vector<std::multiset<std::string>> popped(kWorkers);
  std::vector<std::thread> workers;
  for (int w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&, w] {
      auto store = Connect("a");
      StoreOp add = MakeOp(V::kAdd, {"counter"});
      add.number = 1;
      const auto deadline = std::chrono::steady_clock::now() + kEventDeadline;
      for (int i = 0; relay_.cuts() < kCuts && std::chrono::steady_clock::now() < deadline; ++i) {
        ++times;
        const std::string item = std::to_string(w) + "/" + std::to_string(i);
        EXPECT_TRUE(store->Call(add).status.ok());
        EXPECT_TRUE(store->Call(MakeOp(V::kAppend, {"text"}, {"x"})).status.ok());
        EXPECT_TRUE(store->Call(MakeOp(V::kQueuePush, {"q"}, {item})).status.ok());
        const StoreResult pop =
            store->Call(WithTimeout(MakeOp(V::kQueuePop, {"q"}), std::chrono::seconds(20)));
        EXPECT_TRUE(pop.status.ok()) << pop.status;
        if (pop.status.ok()) popped[static_cast<std::size_t>(w)].insert(pop.values[0]);
      }
      --running;
    });
  }
  // Cut whenever something has gone up since the last time.
  // Over no relay.
  proxy_b_.reset();
  proxy_b_ = StartProxy("b", kEventDeadline, server_->store_connector());
  auto watch = Connect("b");
  StoreOp count = MakeOp(V::kAdd, {"counter"});
  std::int64_t last = -1;
  while (running > 0) {
    const std::int64_t now = watch->Call(count).number;
    if (now > last + 3) relay_.Cut();
    last = std::max(last, now);
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_GE(relay_.cuts(), kCuts) << "the connection was hardly ever cut";
  EXPECT_EQ(watch->Call(count).number, times);
  EXPECT_EQ(ValueOf(watch->Call(MakeOp(V::kGet, {"text"}))).size(),
            static_cast<std::size_t>(times));
  EXPECT_EQ(watch->Call(MakeOp(V::kQueueLen, {"q"})).number, 0);
  std::set<std::string> all;
  for (const auto& of_worker : popped) all.insert(of_worker.begin(), of_worker.end());
  EXPECT_EQ(all.size(), static_cast<std::size_t>(times)) << "one was popped twice";
}

TEST_F(StoreAgentsTest, WithoutAReconnectTimeoutABrokenConnectionIsUnavailable) {
  auto store = Connect("b");
  ASSERT_TRUE(store->Call(MakeOp(V::kSet, {"here"}, {""})).status.ok());
  std::thread cutter([&] {
    // The wait below is the second message of the node.
    while (server_->store_messages("run", "id-b") < 2) std::this_thread::yield();
    relay_.Cut();
  });
  const StoreResult result =
      store->Call(WithTimeout(MakeOp(V::kGet, {"never"}), std::chrono::seconds(60)));
  cutter.join();
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("connection to the rendezvous"));
  EXPECT_TRUE(store->Call(MakeOp(V::kSet, {"k"}, {"v"})).status.ok()) << "the next finds a new one";
}

TEST_F(StoreAgentsTest, AServiceThatDoesNotComeBackIsUnavailableAfterAll) {
  proxy_a_.reset();
  proxy_a_ = StartProxy("a", std::chrono::milliseconds(200));
  auto store = Connect("a");
  ASSERT_TRUE(store->Call(MakeOp(V::kSet, {"k"}, {"v"})).status.ok());
  server_.reset();
  const StoreResult result = store->Call(MakeOp(V::kSet, {"k"}, {"w"}));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable) << result.status;
}

TEST_F(StoreAgentsTest, AServiceGivenUpAnswersAllAtOnce) {
  auto store = Connect("a");
  ASSERT_TRUE(store->Call(MakeOp(V::kSet, {"k"}, {"v"})).status.ok());
  std::thread giver([&] {
    while (server_->store_messages("run", "id-a") < 2) std::this_thread::yield();
    proxy_a_->Fail(absl::UnavailableError("the rendezvous service is lost"));
  });
  const StoreResult result =
      store->Call(WithTimeout(MakeOp(V::kGet, {"never"}), std::chrono::seconds(60)));
  giver.join();
  EXPECT_EQ(result.status, absl::UnavailableError("the rendezvous service is lost"));
  EXPECT_EQ(store->Call(MakeOp(V::kGet, {"k"})).status.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace ddprun
