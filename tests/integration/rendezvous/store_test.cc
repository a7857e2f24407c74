// SPDX-License-Identifier: Apache-2.0
// A store client straight to the service.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "rendezvous/base/limits.h"
#include "tests/integration/rendezvous/store_contract.h"
#include "tests/integration/rendezvous/test_node.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() : server_(StartServer()), node_(server_->target(), JoinWithRestarts()) {
    EXPECT_TRUE(node_.Next<Start>());
  }

  static Join JoinWithRestarts() {
    Join join = MakeJoin("a", 1);
    join.restarts_max = 3;
    return join;
  }

  std::shared_ptr<StoreClient> Connect(RoundId round = RoundId{1}, std::string run_id = "run") {
    auto client = StoreClient::Connect({.target = server_->target(),
                                        .run_id = std::move(run_id),
                                        .node_id = "id-a",
                                        .round = round});
    EXPECT_TRUE(client.ok()) << client.status();
    return *client;
  }

  void BreakRound(RoundId round) {
    node_.Send(WorkerFailed{round, Failure{}});
    ASSERT_TRUE(node_.Next<Stop>());
    node_.Send(NodeStopped{round, 4000});
    ASSERT_TRUE(node_.Next<Start>());
  }

  std::unique_ptr<RendezvousServer> server_;
  TestNode node_;
};

TEST_F(StoreTest, AllVerbs) { ExpectAllVerbsWork(*Connect()); }

TEST_F(StoreTest, Waits) { ExpectWaitsWork(*Connect(), *Connect()); }

TEST_F(StoreTest, ConcurrentCallers) { ExpectConcurrentCallersWork(*Connect()); }

TEST_F(StoreTest, LargeValuesPassAndTooLargeOnesAreRefused) {
  auto store = Connect();
  const std::string large(kValueBytesMax, 'x');
  ASSERT_TRUE(store->Call(MakeOp(StoreVerb::kSet, {"large"}, {large})).status.ok());
  EXPECT_EQ(ValueOf(store->Call(MakeOp(StoreVerb::kGet, {"large"}))), large);
  EXPECT_EQ(store->Call(MakeOp(StoreVerb::kSet, {"large"}, {large + "x"})).status.code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(StoreTest, ARoundChangeEmptiesTheStoreAndAbortsWaiters) {
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
  EXPECT_EQ(Connect(RoundId{2})->Call(MakeOp(StoreVerb::kNumKeys, {})).number, 0);
}

TEST_F(StoreTest, AnUnknownRunIsNamed) {
  auto store = Connect(RoundId{1}, "other");
  const StoreResult result = store->Call(MakeOp(StoreVerb::kNumKeys, {}));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("knows no run 'other'"));
}

TEST_F(StoreTest, TheServicesEndEndsWaits) {
  auto store = Connect();
  auto waiting = std::async(std::launch::async, [&] {
    return store->Call(WithTimeout(MakeOp(StoreVerb::kGet, {"never"}), std::chrono::seconds(60)));
  });
  // The server's own end must not depend on the wait having begun.
  server_.reset();
  EXPECT_EQ(waiting.get().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(store->Call(MakeOp(StoreVerb::kNumKeys, {})).status.code(),
            absl::StatusCode::kUnavailable);
}

TEST(StoreConnectTest, NobodyThere) {
  const auto client = StoreClient::Connect({.target = "127.0.0.1:1",
                                            .run_id = "run",
                                            .node_id = "n",
                                            .connect_timeout = milliseconds(200)});
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace ddprun
