// SPDX-License-Identifier: Apache-2.0
// Workers' store clients on an agent's unix socket, the agent's proxy, and the service behind it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "rendezvous/base/limits.h"
#include "rendezvous/proxy/store_proxy.h"
#include "tests/integration/rendezvous/raw_worker.h"
#include "tests/integration/rendezvous/store_contract.h"
#include "tests/integration/rendezvous/test_node.h"
#include "tests/testing/tcpstore_requests.h"

namespace ddprun {
namespace {

using tcpstore::kHello;
using tcpstore::Request;
using tcpstore::Terms;
using tcpstore::Text;
using tcpstore::U64;
using ::testing::HasSubstr;

// An agent that reaches the service over its connection, and one whose process the service is in.
class StoreProxyTest : public ::testing::TestWithParam<bool> {
 protected:
  StoreProxyTest() : server_(StartServer()), node_(server_->target(), JoinWithRestarts()) {
    EXPECT_TRUE(node_.Next<Start>());
    auto proxy = StoreProxy::Start({.socket_path = dir_ / "s",
                                    .channel = node_.channel(),
                                    .connector = GetParam() ? server_->store_connector() : nullptr,
                                    .run_id = "run",
                                    .node_id = NodeId{"id-a"}});
    EXPECT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
    proxy_->SetRound(RoundId{1});
  }

  static Join JoinWithRestarts() {
    Join join = MakeJoin("a", 1);
    join.restarts_max = 3;
    return join;
  }

  std::shared_ptr<StoreClient> Connect(RoundId round = RoundId{1}) {
    auto client = StoreClient::Connect({.target = "unix:" + (dir_ / "s"), .round = round});
    EXPECT_TRUE(client.ok()) << client.status();
    return *client;
  }

  void BreakRound(RoundId round) {
    node_.Send(WorkerFailed{round, Failure{}});
    ASSERT_TRUE(node_.Next<Stop>());
    node_.Send(NodeStopped{round, 4000});
    ASSERT_TRUE(node_.Next<Start>());
  }

  TempDir dir_;
  std::unique_ptr<RendezvousServer> server_;
  TestNode node_;
  std::unique_ptr<StoreProxy> proxy_;
};

TEST_P(StoreProxyTest, AllVerbs) { ExpectAllVerbsWork(*Connect()); }

TEST_P(StoreProxyTest, Waits) { ExpectWaitsWork(*Connect(), *Connect()); }

TEST_P(StoreProxyTest, ConcurrentCallers) { ExpectConcurrentCallersWork(*Connect()); }

TEST_P(StoreProxyTest, ARoundChangeAbortsWaitersAndLaterOperations) {
  auto store = Connect();
  auto waiting = std::async(std::launch::async, [&] {
    return store->Call(WithTimeout(MakeOp(StoreVerb::kGet, {"never"}), std::chrono::seconds(60)));
  });
  ASSERT_TRUE(store->Call(MakeOp(StoreVerb::kNumKeys, {})).status.ok());
  proxy_->SetRound(RoundId{2});
  const StoreResult aborted = waiting.get();
  EXPECT_EQ(aborted.status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(aborted.status.message()),
              HasSubstr("round 1, but the node is in round 2"));
  EXPECT_EQ(store->Call(MakeOp(StoreVerb::kNumKeys, {})).status.code(), absl::StatusCode::kAborted);
}

// The pops of a worker that has gone must not take the values that others wait for.
TEST_P(StoreProxyTest, AWorkersEndTakesItsWaitsAlong) {
  constexpr std::uint64_t kPops = 200;
  for (std::uint64_t i = 0; i < kPops; ++i) {
    RawWorker worker(dir_ / "s");
    worker.Write(kHello + Terms(1, /*timeout_ms=*/60'000) + Request(15, Text("q")));
  }
  auto other = Connect();
  std::uint64_t pushed = 0;
  do {
    ASSERT_LT(++pushed, kPops) << "the service still serves the worker that is gone";
    ASSERT_TRUE(other->Call(MakeOp(StoreVerb::kQueuePush, {"q"}, {"v"})).status.ok());
  } while (other->Call(MakeOp(StoreVerb::kQueueLen, {"q"})).number == 0);
}

TEST_P(StoreProxyTest, AWorkerOfAnotherProtocolIsToldSo) {
  RawWorker worker(dir_ / "s");
  worker.Write(kHello + Terms(1, 0, /*version=*/999) + Request(7));
  EXPECT_EQ(worker.Read(1),
            std::string(1, static_cast<char>(absl::StatusCode::kFailedPrecondition)));
  EXPECT_THAT(worker.Read(4096), HasSubstr("the worker speaks protocol 999"));
  EXPECT_TRUE(worker.IsAtEnd());
}

// A request with terms that the agent cannot read gets the reason back.
TEST_P(StoreProxyTest, AKeyThatIsTooLongIsToldToItsWorker) {
  RawWorker worker(dir_ / "s");
  worker.Write(kHello + Terms(1) + Request(3, U64(kKeyBytesMax + 1)));
  EXPECT_EQ(worker.Read(1),
            std::string(1, static_cast<char>(absl::StatusCode::kResourceExhausted)));
  EXPECT_THAT(worker.Read(4096), HasSubstr("a key of 8193 bytes; at most 8192 are allowed"));
  EXPECT_TRUE(worker.IsAtEnd());
}

// What is no message ends its own stream and nobody else's.
TEST_P(StoreProxyTest, GarbageEndsItsStream) {
  auto other = Connect();
  for (const std::string& garbage : {std::string("\xff\xff\xff\xff", 4), kHello + Request(19),
                                     kHello + Request(1, U64(~0ull))}) {
    RawWorker worker(dir_ / "s");
    worker.Write(garbage);
    EXPECT_TRUE(worker.IsAtEnd());
  }
  EXPECT_TRUE(other->Call(MakeOp(StoreVerb::kNumKeys, {})).status.ok());
}

TEST_P(StoreProxyTest, TheServicesEndIsUnavailable) {
  auto store = Connect();
  auto waiting = std::async(std::launch::async, [&] {
    return store->Call(WithTimeout(MakeOp(StoreVerb::kGet, {"never"}), std::chrono::seconds(60)));
  });
  ASSERT_TRUE(store->Call(MakeOp(StoreVerb::kNumKeys, {})).status.ok());
  server_.reset();
  EXPECT_EQ(waiting.get().status.code(), absl::StatusCode::kUnavailable);
}

TEST_P(StoreProxyTest, TheProxysEndIsUnavailableAndRemovesTheSocket) {
  auto store = Connect();
  auto waiting = std::async(std::launch::async, [&] {
    return store->Call(WithTimeout(MakeOp(StoreVerb::kGet, {"never"}), std::chrono::seconds(60)));
  });
  ASSERT_TRUE(store->Call(MakeOp(StoreVerb::kNumKeys, {})).status.ok());
  proxy_.reset();
  EXPECT_EQ(waiting.get().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "s"));
}

TEST_P(StoreProxyTest, ATakenOrTooLongPathIsRefused) {
  const auto start = [this](const std::string& path) {
    return StoreProxy::Start({.socket_path = path,
                              .channel = node_.channel(),
                              .run_id = "run",
                              .node_id = NodeId{"id-a"}})
        .status()
        .code();
  };
  EXPECT_EQ(start(dir_ / "s"), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(start(dir_ / std::string(120, 'x')), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(start(dir_ / "no/such/folder"), absl::StatusCode::kInvalidArgument);
}

TEST_P(StoreProxyTest, LargeValuesPassAndTooLargeOnesAreRefused) {
  auto store = Connect();
  const std::string large(kValueBytesMax, 'x');
  ASSERT_TRUE(store->Call(MakeOp(StoreVerb::kSet, {"large"}, {large})).status.ok());
  EXPECT_EQ(ValueOf(store->Call(MakeOp(StoreVerb::kGet, {"large"}))), large);
  EXPECT_EQ(store->Call(MakeOp(StoreVerb::kSet, {"large"}, {large + "x"})).status.code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_P(StoreProxyTest, ARoundChangeEmptiesTheStoreAndAbortsWaiters) {
  auto store = Connect();
  ASSERT_TRUE(store->Call(MakeOp(StoreVerb::kSet, {"k"}, {"old"})).status.ok());
  auto waiting = std::async(std::launch::async, [&] {
    return store->Call(WithTimeout(MakeOp(StoreVerb::kGet, {"never"}), std::chrono::seconds(60)));
  });
  BreakRound(RoundId{1});
  EXPECT_EQ(waiting.get().status.code(), absl::StatusCode::kAborted);
  const StoreResult late = store->Call(MakeOp(StoreVerb::kSet, {"k"}, {"late"}));
  EXPECT_EQ(late.status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(late.status.message()),
              HasSubstr("belongs to round 1, but the run is in round 2"));
  proxy_->SetRound(RoundId{2});
  EXPECT_EQ(Connect(RoundId{2})->Call(MakeOp(StoreVerb::kNumKeys, {})).number, 0);
}

TEST_P(StoreProxyTest, AnUnknownRunIsNamed) {
  proxy_.reset();
  auto proxy = StoreProxy::Start({.socket_path = dir_ / "s",
                                  .channel = node_.channel(),
                                  .connector = GetParam() ? server_->store_connector() : nullptr,
                                  .run_id = "other",
                                  .node_id = NodeId{"id-a"}});
  ASSERT_TRUE(proxy.ok()) << proxy.status();
  (*proxy)->SetRound(RoundId{1});
  const StoreResult result = Connect()->Call(MakeOp(StoreVerb::kNumKeys, {}));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("knows no run 'other'"));
}

TEST(StoreConnectTest, NobodyThere) {
  const auto client = StoreClient::Connect(
      {.target = "unix:/nonexistent/s", .connect_timeout = std::chrono::milliseconds(200)});
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("unix:/nonexistent/s"));
}

INSTANTIATE_TEST_SUITE_P(Agent, StoreProxyTest, ::testing::Bool(), [](const auto& of) {
  return of.param ? "InTheServicesProcess" : "OverItsConnection";
});

}  // namespace
}  // namespace ddprun
