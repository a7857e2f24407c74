// SPDX-License-Identifier: Apache-2.0
// Workers' store clients on an agent's unix socket, the agent's proxy, and the service behind it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "rendezvous/convert.h"
#include "rendezvous/grpc_channel.h"
#include "rendezvous/store_proxy.h"
#include "rendezvous/store_upstream.h"
#include "tests/integration/rendezvous/store_contract.h"
#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class StoreProxyTest : public ::testing::Test {
 protected:
  StoreProxyTest() : server_(StartServer()), node_(server_->target(), MakeJoin("a", 1)) {
    EXPECT_TRUE(node_.Next<Start>());
    auto proxy = StoreProxy::Start({.socket_path = dir_ / "s",
                                    .channel = node_.channel(),
                                    .run_id = "run",
                                    .node_id = NodeId{"id-a"}});
    EXPECT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
    proxy_->SetRound(RoundId{1});
  }

  // What a worker says of itself is not asked for.
  std::shared_ptr<StoreClient> Connect(RoundId round = RoundId{1}) {
    auto client = StoreClient::Connect(
        {.target = "unix:" + (dir_ / "s"), .run_id = "nonsense", .node_id = "", .round = round});
    EXPECT_TRUE(client.ok()) << client.status();
    return *client;
  }

  std::shared_ptr<StoreClient> ConnectDirectly() {
    auto client = StoreClient::Connect(
        {.target = server_->target(), .run_id = "run", .node_id = "id-a", .round = RoundId{1}});
    EXPECT_TRUE(client.ok()) << client.status();
    return *client;
  }

  TempDir dir_;
  std::unique_ptr<RendezvousServer> server_;
  TestNode node_;
  std::unique_ptr<StoreProxy> proxy_;
};

TEST_F(StoreProxyTest, AllVerbs) { ExpectAllVerbsWork(*Connect()); }

TEST_F(StoreProxyTest, Waits) { ExpectWaitsWork(*Connect(), *Connect()); }

TEST_F(StoreProxyTest, ConcurrentCallers) { ExpectConcurrentCallersWork(*Connect()); }

TEST_F(StoreProxyTest, WorkersAndDirectClientsSeeOneStore) {
  ExpectWaitsWork(*Connect(), *ConnectDirectly());
}

TEST_F(StoreProxyTest, ARoundChangeAbortsWaitersAndLaterOperations) {
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
TEST_F(StoreProxyTest, AWorkersEndTakesItsWaitsAlong) {
  constexpr std::uint64_t kPops = 20'000;
  std::promise<void> all_wait;
  std::promise<void> ended;
  auto worker = StoreUpstream::Open(
      MakeChannel("unix:" + (dir_ / "s")), {.run_id = "", .node_id = ""},
      [&](v1::StoreReply) { all_wait.set_value(); },
      [&](const StoreUpstream*, const grpc::Status&) { ended.set_value(); });
  const auto send = [&worker](std::uint64_t id, StoreOp op) {
    op.round = RoundId{1};
    v1::StoreRequest request;
    request.set_id(id);
    *request.mutable_op() = ToProto(std::move(op));
    worker->Push(std::move(request));
  };
  for (std::uint64_t id = 1; id <= kPops; ++id) {
    send(id, WithTimeout(MakeOp(StoreVerb::kQueuePop, {"q"}), std::chrono::seconds(60)));
  }
  // A stream keeps its order: once this is answered, the pops before it wait in the service.
  send(kPops + 1, MakeOp(StoreVerb::kNumKeys, {}));
  worker->Flush();
  all_wait.get_future().wait();
  worker->Cancel();
  ended.get_future().wait();
  auto other = Connect();
  std::uint64_t pushed = 0;
  do {
    ASSERT_LT(++pushed, kPops) << "the service still serves the worker that is gone";
    ASSERT_TRUE(other->Call(MakeOp(StoreVerb::kQueuePush, {"q"}, {"v"})).status.ok());
  } while (other->Call(MakeOp(StoreVerb::kQueueLen, {"q"})).number == 0);
}

TEST_F(StoreProxyTest, TheServicesEndIsUnavailable) {
  auto store = Connect();
  auto waiting = std::async(std::launch::async, [&] {
    return store->Call(WithTimeout(MakeOp(StoreVerb::kGet, {"never"}), std::chrono::seconds(60)));
  });
  ASSERT_TRUE(store->Call(MakeOp(StoreVerb::kNumKeys, {})).status.ok());
  server_.reset();
  EXPECT_EQ(waiting.get().status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(StoreProxyTest, TheProxysEndIsUnavailableAndRemovesTheSocket) {
  auto store = Connect();
  auto waiting = std::async(std::launch::async, [&] {
    return store->Call(WithTimeout(MakeOp(StoreVerb::kGet, {"never"}), std::chrono::seconds(60)));
  });
  ASSERT_TRUE(store->Call(MakeOp(StoreVerb::kNumKeys, {})).status.ok());
  proxy_.reset();
  EXPECT_EQ(waiting.get().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "s"));
}

TEST_F(StoreProxyTest, ATakenOrTooLongPathIsRefused) {
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

}  // namespace
}  // namespace ddprun
