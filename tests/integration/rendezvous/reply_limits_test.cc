// SPDX-License-Identifier: Apache-2.0
// Requests of a few KB that ask for gigabytes: at an agent's store and at the service's.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/ddprun.grpc.pb.h"
#include "proto/version.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/tcpstore/protocol.h"
#include "rendezvous/tcpstore/store_client.h"
#include "tests/integration/rendezvous/raw_worker.h"
#include "tests/integration/rendezvous/store_agent.h"
#include "tests/integration/rendezvous/store_contract.h"
#include "tests/testing/eventually.h"
#include "tests/testing/tcpstore_requests.h"

namespace ddprun {
namespace {

using tcpstore::Opcode;
using tcpstore::Text;
using tcpstore::U64;

constexpr std::size_t kLarge = kValueBytesMax - 100;
// What an attack may cost in this process, which is the agent and the service: on a busy machine 60
// MB were seen, seven copies of a value on their way. They ask for a gigabyte and more.
constexpr std::size_t kCostMax = std::size_t{96} << 20;

std::string Get(const std::string& key) {
  return tcpstore::Request(static_cast<int>(Opcode::kGet), Text(key));
}

class ReplyLimitsTest : public StoreAgentTest {
 protected:
  ReplyLimitsTest() {
    auto honest = StoreClient::Connect({.target = "unix:" + socket_, .round = RoundId{1}});
    EXPECT_TRUE(honest.ok()) << honest.status();
    honest_ = *std::move(honest);
  }

  void SetLarge(const std::string& key, char value) {
    const StoreResult result =
        honest_->Call(MakeOp(StoreVerb::kSet, {key}, {std::string(kLarge, value)}));
    ASSERT_TRUE(result.status.ok()) << result.status;
  }
  // An honest worker's, small and large.
  void ExpectServed() {
    EXPECT_TRUE(honest_->Call(MakeOp(StoreVerb::kSet, {"small"}, {"value"})).status.ok());
    EXPECT_EQ(ValueOf(honest_->Call(MakeOp(StoreVerb::kGet, {"small"}))), "value");
    const std::string large = ValueOf(honest_->Call(MakeOp(StoreVerb::kGet, {"large"})));
    EXPECT_TRUE(large == std::string(kLarge, 'v')) << large.substr(0, 200);
  }
  // The most that `attack` and what follows for a while cost at any time.
  template <typename Attack>
  static std::size_t CostOf(Attack attack) {
    const std::size_t before = ResidentBytes();
    std::size_t most = before;
    attack();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (std::chrono::steady_clock::now() < end) {
      most = std::max(most, ResidentBytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return most - before;
  }

  std::shared_ptr<StoreClient> honest_;
};

// ---- At an agent

TEST_F(ReplyLimitsTest, OneClientsRequestsAreAnsweredAsItReads) {
  SetLarge("large", 'v');
  RawWorker attacker(socket_);
  EXPECT_LT(CostOf([&] {
              std::string gets = tcpstore::kHello;
              for (int i = 0; i < 150; ++i) gets += Get("large");
              attacker.Write(gets);
            }),
            kCostMax);
  ExpectServed();
  // It is not closed: it gets all if it reads.
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(attacker.Read(8), U64(kLarge));
    EXPECT_TRUE(attacker.Read(kLarge) == std::string(kLarge, 'v'));
  }
}

TEST_F(ReplyLimitsTest, OneRequestOfManyKeysIsRejectedAboveAMessage) {
  SetLarge("large", 'v');
  RawWorker attacker(socket_);
  EXPECT_LT(CostOf([&] {
              std::string request = tcpstore::Request(static_cast<int>(Opcode::kMultiGet), U64(161),
                                                      Text("nobody sets this"));
              for (int i = 0; i < 160; ++i) request += Text("large");
              attacker.Write(tcpstore::kHello + request);
            }),
            kCostMax);
  EXPECT_TRUE(attacker.IsAtEnd());
  ExpectServed();
}

TEST_F(ReplyLimitsTest, ManyClientsWhoDoNotReadAreClosed) {
  constexpr int kAttackers = 40;
  SetLarge("large", 'v');
  for (int i = 0; i < kAttackers; ++i) SetLarge(absl::StrCat("large-", i), 'a');
  std::vector<std::unique_ptr<RawWorker>> attackers;
  EXPECT_LT(CostOf([&] {
              for (int i = 0; i < kAttackers; ++i) {
                attackers.push_back(std::make_unique<RawWorker>(socket_));
                attackers.back()->Write(tcpstore::kHello + Get(absl::StrCat("large-", i)));
              }
            }),
            2 * kCostMax);
  ExpectServed();
  int closed = 0;
  for (const auto& attacker : attackers) closed += attacker->Read(kLarge).size() < kLarge ? 1 : 0;
  EXPECT_GE(closed, kAttackers - 4);
}

// Those who read get theirs, however many there are.
TEST_F(ReplyLimitsTest, ManyClientsWhoReadAreServed) {
  constexpr int kWorkers = 24;
  for (int i = 0; i < kWorkers; ++i) SetLarge(absl::StrCat("large-", i), 'v');
  std::vector<std::thread> workers;
  for (int i = 0; i < kWorkers; ++i) {
    workers.emplace_back([this, i] {
      auto store = StoreClient::Connect({.target = "unix:" + socket_, .round = RoundId{1}});
      ASSERT_TRUE(store.ok()) << store.status();
      for (int turn = 0; turn < 3; ++turn) {
        const StoreResult result = (*store)->Call(
            MakeOp(StoreVerb::kGet, {absl::StrCat("large-", (i + turn) % kWorkers)}));
        EXPECT_EQ(ValueOf(result).size(), kLarge) << result.status;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
}

// ---- At the service

// A member's stream of the store that says what the test wants, and reads nothing.
class RawStream {
 public:
  RawStream(const std::string& target, const std::string& space)
      : stub_(v1::Store::NewStub(grpc::CreateCustomChannel(
            target, grpc::InsecureChannelCredentials(), ChannelArguments()))),
        stream_(stub_->Exchange(&context_)) {
    v1::StoreHello& hello = *message_.mutable_hello();
    hello.set_protocol_version(kProtocolVersion);
    hello.set_run_id("run");
    hello.set_node_id("id-a");
    hello.set_stream(1);
    hello.set_space(space);
  }
  ~RawStream() {
    context_.TryCancel();
    stream_->Finish();
  }

  // It takes messages of any size, and none before it reads.
  static grpc::ChannelArguments ChannelArguments() {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return arguments;
  }

  void Add(StoreVerb verb, const std::string& key) {
    v1::StoreRequest& request = *message_.add_requests();
    request.set_id(++last_id_);
    request.mutable_op()->set_verb(static_cast<v1::StoreOp::Verb>(verb));
    request.mutable_op()->set_round(1);
    if (!key.empty()) request.mutable_op()->add_keys(key);
  }
  void AddSet(const std::string& key, std::string value) {
    Add(StoreVerb::kSet, key);
    message_.mutable_requests(message_.requests_size() - 1)->mutable_op()->add_values(value);
  }
  void Send() {
    EXPECT_TRUE(stream_->Write(message_));
    message_.Clear();
  }
  bool Read(v1::StoreReplies* replies) { return stream_->Read(replies); }

 private:
  const std::unique_ptr<v1::Store::Stub> stub_;
  grpc::ClientContext context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::StoreRequests, v1::StoreReplies>> stream_;
  v1::StoreRequests message_;
  std::uint64_t last_id_ = 0;
};

TEST_F(ReplyLimitsTest, OneMessagesRequestsAreAnsweredAsTheNodeReads) {
  SetLarge("large", 'v');
  RawStream attacker(server_->target(), "space");
  attacker.AddSet("its own", std::string(kLarge, 'a'));
  attacker.Send();
  EXPECT_LT(CostOf([&] {
              for (std::size_t i = 0; i < kStoreBatchOps; ++i)
                attacker.Add(StoreVerb::kGet, "its own");
              attacker.Send();
            }),
            kCostMax);
  ExpectServed();
  v1::StoreReplies replies;
  std::uint64_t next = 1;
  while (next < 6 && attacker.Read(&replies)) {
    for (const v1::StoreReply& reply : replies.replies()) {
      EXPECT_EQ(reply.id(), next++);
      if (reply.id() > 1) {
        EXPECT_EQ(reply.values(0).size(), kLarge);
      }
    }
  }
  EXPECT_GE(next, 6u);
}

TEST_F(ReplyLimitsTest, StreamsThatDoNotReadMakeRoom) {
  constexpr int kAttackers = 60;
  SetLarge("large", 'v');
  std::vector<std::unique_ptr<RawStream>> attackers;
  for (int i = 0; i < kAttackers; ++i) {
    attackers.push_back(std::make_unique<RawStream>(server_->target(), absl::StrCat("space-", i)));
    attackers.back()->AddSet("its own", std::string(kLarge / 2, 'a'));
    attackers.back()->Send();
    v1::StoreReplies replies;
    EXPECT_TRUE(attackers.back()->Read(&replies));
  }
  EXPECT_LT(CostOf([&] {
              for (const auto& attacker : attackers) {
                attacker->Add(StoreVerb::kGet, "its own");
                attacker->Send();
              }
            }),
            kCostMax);
  // A small reply has its own way; a large one waits until they have had their time.
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(ValueOf(honest_->Call(MakeOp(StoreVerb::kGet, {"absent"}))),
            "waited 0 ms for key 'absent', which nobody has set");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kReplyRoomTimeout / 2);
  ExpectServed();
}

}  // namespace
}  // namespace ddprun
